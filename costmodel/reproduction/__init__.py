"""DLBricks, measured again on this host: its figures, and its numbers beside ours (Li, Xiong, Dakkak, Hwu, 2019)."""
