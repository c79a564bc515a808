"""checkout sends orders over Dapr's HTTP API, without an SDK."""
import json
import os
from urllib.request import Request, urlopen

for order_id in range(1, 4):
    request = Request(
        f"http://127.0.0.1:{os.environ['DAPR_HTTP_PORT']}/orders",
        data=json.dumps({"orderId": order_id}, separators=(",", ":")).encode(),
        headers={"Content-Type": "application/json", "dapr-app-id": "order-processor"},
    )
    with urlopen(request) as answer:
        print("Order passed: " + answer.read().decode(), flush=True)
