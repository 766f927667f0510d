"""The place in a picture that each word was made of: contact sheets, arrays and tables."""
