"""REST servers among strangers: connections are counted, and have their time."""
