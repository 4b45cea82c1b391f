"""The truth: who runs where and how fast, what is asked of web sites. Knows neither agents nor daemons."""
