"""The mathematics: arrays in, values out. Knows neither MLflow nor tables."""
