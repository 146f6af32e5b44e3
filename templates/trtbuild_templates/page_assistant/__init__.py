"""A model that reads a page and asks a language model about it: everything here is copied into its folder."""
