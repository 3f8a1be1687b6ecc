"""A local page where a person tries a model: the models, the server, and the page itself."""
