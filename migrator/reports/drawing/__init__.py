"""Pictures, words and looks that reports and the status page share.

Pure: nothing here reads, writes or looks at a clock. ``pictures`` has the geometry, ``texts`` how
numbers look, ``words`` what codes mean in plain words, ``pages`` the rules of templates;
``templates`` has the HTML of pictures and the style.
"""
