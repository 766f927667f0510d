"""Pictures: published, planted and the user's own."""
