"""Tables, figures and the page, from archives alone; no GPU import."""
