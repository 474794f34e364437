"""A Kafka broker from variables, as in the image apache/kafka: KAFKA_NODE_ID=1 is node.id=1."""

import os
import subprocess
from pathlib import Path

DATA = "/var/lib/kafka/data"
PROPERTIES = "/tmp/server.properties"
CLUSTER_ID = "kw7yContainersAAAAAAAA"  # 16 bytes in base64
JAVA = ["java", "-Xmx512m", "-cp", "/opt/kafka/libs/*"]

settings = {
    name.removeprefix("KAFKA_").lower().replace("_", "."): value
    for name, value in os.environ.items()
    if name.startswith("KAFKA_")
}
settings["log.dirs"] = f"{DATA}/log"
Path(PROPERTIES).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
format_it = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", PROPERTIES]
subprocess.run([*JAVA, *format_it, "--ignore-formatted"], check=True)
os.execvp("java", [*JAVA, "kafka.Kafka", PROPERTIES])
