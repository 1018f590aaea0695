"""The ports of a pod, each by its name."""

CLIENTS = 8000  # Ray Serve's HTTP: the only one that is for others
METRICS = 8080  # Ray's exporter; KubeRay's choice
GCS = 6379  # the cluster's state
DASHBOARD = 8265  # jobs and Serve's configuration: whoever reaches it runs code
AGENT = 52365  # a node's health

HEAD = {"gcs": GCS, "dashboard": DASHBOARD, "metrics": METRICS, "serve": CLIENTS}
WORKER = {"serve": CLIENTS, "metrics": METRICS}
