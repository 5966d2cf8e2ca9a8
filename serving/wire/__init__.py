"""Documents that cross the network: requests, answers and problems, as JSON has them; nothing here knows HTTP's server."""
