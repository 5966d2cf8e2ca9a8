"""Documents that cross the network: requests, answers and problems, as JSON has them. Nothing here knows a server."""
