"""The table behind `test_settings`: for every key of every file two values, and what shows that they differ."""
