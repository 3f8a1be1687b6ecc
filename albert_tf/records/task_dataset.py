"""The names of the files in a prepared folder of a task; see `data_prep.task_data.task_cache`."""

RECORDS = "records.tfrecord"
EXAMPLES = "examples.jsonl"
WINDOWS = "windows.npz"
