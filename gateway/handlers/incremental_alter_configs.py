"""IncrementalAlterConfigs (44) v0-1: upstream's own answer, and a look at the group configs that it
changed.

Upstream is asked on the client's own connection, so its ACLs decide. Group configs that an admin
sets through the gateway count at once. Configs that are set past the gateway are seen at the next
regular look. All of the API is implemented.
"""

from __future__ import annotations

from gateway.core.cluster.slots import Slots
from gateway.core.forwarding.broker_names import named_for_client, named_for_upstream
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.listen.answering import Request
from gateway.members.group_settings import GroupSettings
from gateway.upstream.configs import RESOURCE_GROUP
from gateway.upstream.errors import UpstreamError

OPERATION_SET = 0  # AlterConfigOp.OpType


async def incremental_alter_configs(
    settings: GroupSettings, slots: Slots, request: Request
) -> bytes:
    header = request.header
    key, version = header.api_key, header.api_version
    body = decode_request(key, version, request.frame, header.body_at)
    used = named_for_upstream(key, body, slots)
    try:
        answer = await request.connection.ask_upstream(key, version, body)
    except UpstreamError as error:
        rows = _unanswered(body, str(error))
        named_for_client(rows, used)
        return encode_response(key, version, {"Responses": rows})
    if not body["ValidateOnly"]:
        accepted = {
            row["ResourceName"]
            for row in answer["Responses"]
            if row["ResourceType"] == RESOURCE_GROUP and row["ErrorCode"] == 0
        }
        await settings.altered(
            {
                row["ResourceName"]: {config["Name"]: _value(config) for config in row["Configs"]}
                for row in body["Resources"]
                if row["ResourceType"] == RESOURCE_GROUP and row["ResourceName"] in accepted
            }
        )
    named_for_client(answer["Responses"], used)
    return encode_response(key, version, answer)


def _value(config: Message) -> str | None:
    """None: deleted. No group config is a list, so there is nothing to append to."""
    value: str | None = config["Value"]
    return value if config["ConfigOperation"] == OPERATION_SET else None


def _unanswered(body: Message, reason: str) -> list[Message]:
    """The answer while nobody knows whether the change was made; admin clients may ask again."""
    return [
        {
            "ErrorCode": int(ErrorCode.REQUEST_TIMED_OUT),
            "ErrorMessage": reason,
            "ResourceType": row["ResourceType"],
            "ResourceName": row["ResourceName"],
        }
        for row in body["Resources"]
    ]
