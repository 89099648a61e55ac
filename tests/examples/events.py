"""What stands in TensorBoard's event files, as far as the programs' tests look."""

import os
import struct

# Field 7 of an event, a message whose field 1 is START.
SESSION_START = b"\x3a\x02\x08\x01"


def varint(data):
    """The number at the beginning, and what follows it."""
    value = shift = 0
    for i, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data[i + 1 :]
    raise ValueError("a number without an end")


def events_in(data):
    """[(step, the rest of the event)] of an event file. Our writer begins events with wall time and step."""
    events = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event, data = data[12 : 12 + length], data[16 + length :]
        assert event[0] == 0x09, event
        event = event[9:]
        step = 0
        if event[:1] == b"\x10":
            step, event = varint(event[1:])
        events.append((step, event))
    return events


def scalars(folder, tag):
    """{step: value} of a tag in all files of a folder, the newest file's last."""
    name = tag.encode()
    beginning = b"\x0a" + bytes([len(name)]) + name + b"\x15"  # field 1, the tag; field 2, a float
    found = {}
    for file in sorted(os.listdir(folder)):
        with open(os.path.join(folder, file), "rb") as events:
            for step, event in events_in(events.read()):
                at = event.find(beginning)
                if at >= 0:
                    (found[step],) = struct.unpack("<f", event[at + len(beginning) :][:4])
    return found
