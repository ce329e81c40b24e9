"""Reports that one can mail: a JSON document goes in, one page of HTML comes out.

Pure: nothing here reads, writes or looks at a clock. A page shows the numbers of the document it
is given and no others; it has no script and loads nothing. ``page`` has what all reports share,
``templates`` the HTML; pictures and words are those of ``migrator.reports.drawing``.
"""

from migrator.reports.html.page import About
from migrator.reports.html.preview import preview_page
from migrator.reports.html.verify import verify_page

__all__ = ["About", "preview_page", "verify_page"]
