"""A decision model server for plannerd, around any function. Start with `model.py`."""
