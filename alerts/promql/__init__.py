"""PromQL expressions as values: the types (`expression`), functions that make (`build`) and change (`change`) them."""
