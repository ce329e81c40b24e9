"""Pages that one can mail, and the pictures and words they share with the status page.

``html`` has a page per report, ``drawing`` what all of them look like: JSON in, HTML out.
"""
