"""Handing a claimed batch over to the native delays, so that no crash loses or doubles a row.

``prepare`` turns rows into messages, ``direct`` publishes a batch straight into the levels,
``staged`` first gathers it in a queue of its own and then moves it all or not at all.
Which way a batch goes is fixed when it is claimed. Source: design section 5.
"""
