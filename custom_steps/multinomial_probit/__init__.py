"""Steps of `MultinomialProbit`."""
