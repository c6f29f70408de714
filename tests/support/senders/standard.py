"""Standard webhooks as the reference library signs them, one a line as github.mjs writes them.

python standard.py DIR COUNT SECRET, with standardwebhooks importable and @octokit/webhooks-examples below DIR/node_modules,
whose payloads are what the events carry.
"""
import base64
import datetime
import json
import sys

from standardwebhooks.webhooks import Webhook

where, count, secret = sys.argv[1:]
with open(f"{where}/node_modules/@octokit/webhooks-examples/api.github.com/index.json", encoding="utf-8") as file:
    payloads = [example for kind in json.load(file) for example in kind["examples"]]
webhook = Webhook(secret)
for nth in range(int(count)):
    now = datetime.datetime.now(tz=datetime.timezone.utc)
    event = f"msg_{nth}"
    payload = payloads[nth % len(payloads)]
    # Some senders write their letters as they are, some escape them.
    body = json.dumps({"type": "example", "data": {"id": nth, "payload": payload}}, ensure_ascii=nth % 2 == 0)
    headers = {
        "Content-Type": "application/json",
        "webhook-id": event,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": webhook.sign(event, now, body),
    }
    print(json.dumps({
        "path": "/hooks/standard",
        "id": event,
        "headers": headers,
        "body": base64.b64encode(body.encode()).decode(),
    }))
