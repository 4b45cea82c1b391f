"""Files of jobs that slow each other: `file`."""
