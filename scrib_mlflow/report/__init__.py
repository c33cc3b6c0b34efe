"""What people read. Nothing here writes to MLflow.

`facts` are values with the one class table, `words` says them in a terminal, a note or a
description, `page` and `figures` make report.html; `plan`, `comparison`, `frontier`,
`selection` and `monitoring` are the reports of those commands. Texts with placeholders are in
`templates`.
"""
