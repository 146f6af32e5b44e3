"""Jinja templates and static model code that `trtbuild` writes into repositories."""
