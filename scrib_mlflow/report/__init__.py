"""What people read: facts, words, figures and the page. Writes nothing to MLflow."""
