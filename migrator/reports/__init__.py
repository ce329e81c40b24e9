"""Reports as HTML and JSON: a JSON document goes in, one page that can be mailed comes out.

Start with ``preview`` or ``verify``, one page each. ``pages`` is what they share, ``pictures`` the
geometry, ``words`` the wording of numbers and codes, ``templates`` the HTML; ``documents`` makes
the JSON of commands and daemon. Pure: no I/O and no clock; a page has no script and loads nothing.
"""
