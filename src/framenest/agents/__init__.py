"""For agents: long videos as tools of the Model Context Protocol and of plain function calling."""
