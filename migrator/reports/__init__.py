"""Pages that one can mail: a JSON document goes in, one page of HTML comes out.

``preview`` and ``verify`` have a page each; ``pages`` has what all pages share, ``pictures`` their
geometry, ``words`` how numbers look and what codes mean, ``templates`` the HTML. Pure: nothing
here reads, writes or looks at a clock; a page has no script and loads nothing. ``documents`` is the
JSON of commands and daemon.
"""
