"""The architectures behind corpora, as torch modules: what they compute, with no weights but random ones."""
