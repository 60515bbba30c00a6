"""Audio processing: from recordings, as files or arrays, to the frames that a model reads."""
