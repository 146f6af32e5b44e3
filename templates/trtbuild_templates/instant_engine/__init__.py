"""An engine without a model, for measuring and testing the text path."""
