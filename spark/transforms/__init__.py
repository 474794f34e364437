"""Record transforms: mask, rename, drop, timestamp, filter, route; on JSON and on registry Avro.

Files, bottom to top: `values`, `paths` (the words), `json_document` and `avro_document` (a value
taken apart only where a path leads, put together byte for byte), `masks`, `times`, `conditions`
(the changes to one field), `steps` (the options of each step), `engine` (one record through all
steps), `frames` (DataFrame -> DataFrame).
"""
