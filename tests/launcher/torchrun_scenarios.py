"""What torchrun is asked to do, for torchrun_scenarios_test.py: a scenario in one line each. Written after reading what PyTorch's own
tests of its launcher check (test/distributed/launcher, test/distributed/elastic).

`options` are for torchrun and ddprun alike; `script` is what the ranks do, as a shell script with say(), which notes a line, and mark()
and await(), by which a rank waits until another one has reached a place. Words in capitals are filled in: FOLDER, PORT (free), JOB (the
script's file). `nodes` has further options, a string for each node. `differs` says what ddprun does differently, as documented; a None
leaves the fact out. `varies` names the facts that torchrun itself does not repeat: the judge does not compare them, and ddprun's are in
`differs`."""

PLACE = 'say "$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE group $GROUP_RANK/$GROUP_WORLD_SIZE role $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE"'
LINES = "echo out one; echo err one >&2; echo out two; echo err two >&2"
ATTEMPT = 'say "attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"; mark $RANK.$TORCHELASTIC_RESTART_COUNT'
# A rank that waits is stopped by the launcher.
WAIT = "while :; do sleep 0.05; done"
WITHOUT_TERM = "trap '' TERM; say ready; mark $RANK; " + WAIT
ERROR = """printf '{"message": {"message": "%s", "extraInfo": {"py_callstack": "", "timestamp": "10"}}}' "$1" > "$TORCHELASTIC_ERROR_FILE" """
PYTHON = ("import os, sys\nopen(os.environ['OUT'] + '/ran', 'a').close()\n"
          "with open(os.environ['OUT'] + '/said.' + os.environ['RANK'], 'a') as file:\n"
          "    print(os.path.basename(sys.argv[0]), sys.argv[1:], 'by', __name__, file=file)\n")
TWO_NODES = ["--nnodes=2 --node-rank=0 --master-addr=127.0.0.1 --master-port=PORT", "--nnodes=2 --node-rank=1 --master-addr=127.0.0.1 --master-port=PORT"]
C10D = "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:PORT --rdzv-id=job"
ELASTIC = "--nnodes=1:2 " + C10D + " --rdzv-conf='join_timeout=20,last_call_timeout=1,timeout=20'"


def scenario(name, options="", script=PLACE, **more):
    return {"name": name, "options": options, "script": script, **more}


def refused(name, options, **more):
    return scenario("refused: " + name, options, **more)


SCENARIOS = [
    # Scripts, modules and programs.
    scenario("a Python script with four ranks", "--nnodes=1 --nproc-per-node=4 --rdzv-id=job --monitor-interval=1 --start-method=spawn",
             program="script.py --flag value"),
    scenario("a Python script at an address", "--nnodes=1 --nproc-per-node=2 --master-addr=localhost --master-port=PORT --node-rank=0",
             program="script.py"),
    scenario("a Python module", "--nproc-per-node=2 -m", program="package.module one two"),
    scenario("a Python package", "--nproc-per-node=2 --module", program="package one"),
    scenario("a script without ending by its path", "--run-path --nproc-per-node=2", program="plain one"),
    scenario("a shell script with four ranks", "--nnodes=1 --nproc-per-node=4 --rdzv-id=job --monitor-interval=1 --start-method=spawn"),
    scenario("one rank unless told", "--nnodes=1 --rdzv-id=job"),
    scenario("options from variables", "", environment={"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_RDZV_ID": "job", "PET_NO_PYTHON": "1",
                                                        "PET_MODULE": "0", "PET_MONITOR_INTERVAL": "1", "PET_START_METHOD": "spawn"},
             program="JOB", bare=True),
    scenario("an option outranks its variable", "--nproc-per-node=1", environment={"PET_NPROC_PER_NODE": "2"}),
    scenario("one rank on each CPU", "--nproc-per-node=cpu", 'say "$([ $WORLD_SIZE = $(nproc) ] && echo equal)"'),
    scenario("automatically one on each CPU", "--nproc-per-node=auto", 'say "$([ $WORLD_SIZE = $(nproc) ] && echo equal)"'),
    scenario("names with underscores", "--nproc_per_node=2 --rdzv_id=job --max_restarts=0"),
    scenario("abbreviated names", "--nproc-per 2 --max-res 0"),
    scenario("options behind the script are its own", "--nproc-per-node=1", program="script.py --nproc-per-node=3 -m -- x"),
    scenario("arguments as they are", "--nproc-per-node=1", 'for word in "$@"; do say "<$word>"; done', arguments=["a b", "", "*", "'\"", "ä", "-x"]),
    scenario("an argument with fields", "--nproc-per-node=2", 'say "$1"', arguments=["${local_rank}"],
             differs={"said": ["0: ${local_rank}", "1: ${local_rank}"]}),
    scenario("an interpreter of one's own", "--nproc-per-node=2", environment={"PYTHON_EXEC": "FOLDER/interpreter"}, program="script.py one"),
    scenario("Python's output is not buffered", "--nproc-per-node=1", program="unbuffered.py"),
    scenario("standalone", "--standalone --nnodes=1 --nproc-per-node=4"),
    scenario("standalone outranks an endpoint", "--standalone --rdzv-endpoint=127.0.0.1:1 --nproc-per-node=2"),
    scenario("two jobs of one machine at a time", "--standalone --nproc-per-node=2", jobs=2),
    scenario("static rendezvous of one node", "--rdzv-backend=static --rdzv-endpoint=127.0.0.1:PORT --nproc-per-node=2"),
    scenario("c10d of one node", "--nnodes=1 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:PORT --rdzv-id=job"),
    scenario("c10d with any port", "--nnodes=1 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:0"),
    scenario("one of one to two nodes", ELASTIC + " --nproc-per-node=2"),
    scenario("as many nodes at least as at most", "--nnodes=1:1 --nproc-per-node=2 " + C10D),
    scenario("torch.distributed.launch passes the local rank", "--nproc-per-node=2", launch=True, program="script.py one"),
    scenario("torch.distributed.launch --use-env", "--nproc-per-node=2 --use-env", launch=True, program="script.py one"),
    scenario("default log specs", "--logs-specs=default --nproc-per-node=1"),
    scenario("the null handler of events", "--event-log-handler=null --nproc-per-node=1"),
    scenario("an address of one's own", "--local-addr=127.0.0.1 --nproc-per-node=1"),
    scenario("a short monitor interval", "--monitor-interval=0.01 --nproc-per-node=1"),
    scenario("help", "--help", bare=True),
    # Environment.
    scenario("names of the variables", "--nproc-per-node=2 --rdzv-id=job",
             "env | grep -oE '^(TORCHELASTIC|TORCH_NCCL|MASTER|RANK|LOCAL|GROUP|ROLE|WORLD)[A-Z_]*=' | sort | while read -r name; do say $name; done"),
    scenario("the run's id", "--nproc-per-node=1 --rdzv-id=job", 'say "${TORCHELASTIC_RUN_ID:+set}"'),
    scenario("the run's id of two nodes", "--nproc-per-node=1 --rdzv-id=job", 'say "$TORCHELASTIC_RUN_ID"', nodes=TWO_NODES),
    scenario("the run's id of two nodes unless told", "--nproc-per-node=1", 'say "$TORCHELASTIC_RUN_ID"', nodes=TWO_NODES),
    scenario("a port that was given", "--nproc-per-node=1 --master-addr=127.0.0.1 --master-port=PORT", 'say "$MASTER_ADDR:$MASTER_PORT"'),
    scenario("ranks are clients of the store", "--nproc-per-node=1", 'say "$TORCHELASTIC_USE_AGENT_STORE"'),
    scenario("restarts that are left", "--nproc-per-node=1 --max-restarts=3", ATTEMPT),
    scenario("a role", "--nproc-per-node=2 --role=trainer"),
    scenario("threads of one rank", "--nproc-per-node=1", 'say "${OMP_NUM_THREADS:-unset}"', differs={"said": None}),
    scenario("threads of two ranks", "--nproc-per-node=2", 'say "${OMP_NUM_THREADS:+set}"'),
    scenario("threads that were chosen", "--nproc-per-node=2", 'say "$OMP_NUM_THREADS"', environment={"OMP_NUM_THREADS": "7"}),
    scenario("NCCL's errors", "--nproc-per-node=1", 'say "$TORCH_NCCL_ASYNC_ERROR_HANDLING"'),
    scenario("NCCL's errors as they were chosen", "--nproc-per-node=1", 'say "$TORCH_NCCL_ASYNC_ERROR_HANDLING"',
             environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    scenario("the caller's variables", "--nproc-per-node=2", 'say "$SENTINEL"', environment={"SENTINEL": "a  b"}),
    scenario("signals to handle", "--nproc-per-node=1 --signals-to-handle=SIGTERM,SIGUSR1", 'say "$TORCHELASTIC_SIGNALS_TO_HANDLE"'),
    scenario("signals to handle unless told", "--nproc-per-node=1", 'say "$TORCHELASTIC_SIGNALS_TO_HANDLE"'),
    scenario("one GPU for each rank", "--nproc-per-node=2 --virtual-local-rank", 'say "$LOCAL_RANK sees $CUDA_VISIBLE_DEVICES"',
             environment={"CUDA_VISIBLE_DEVICES": "3,5"}),
    scenario("GPUs of the caller", "--nproc-per-node=2", 'say "$LOCAL_RANK sees $CUDA_VISIBLE_DEVICES"', environment={"CUDA_VISIBLE_DEVICES": "3,5"}),
    scenario("a timer's file", "--nproc-per-node=1", 'say "${TORCHELASTIC_TIMER_FILE:+set}"', environment={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}),
    scenario("no timer's file", "--nproc-per-node=1", 'say "${TORCHELASTIC_TIMER_FILE:-unset}"'),
    scenario("where an error goes", "--nproc-per-node=2 --log-dir=FOLDER/logs --rdzv-id=job", 'say "${TORCHELASTIC_ERROR_FILE##*/attempt_}"'),
    # Output.
    scenario("output without options", "--nproc-per-node=2", LINES, sees=("out", "err")),
    scenario("standard output to files", "--nproc-per-node=2 --redirects=1 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("standard error to files", "--nproc-per-node=2 -r 2 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("both to files", "--nproc-per-node=2 -r 3 --log-dir=FOLDER/logs --rdzv-id=job", LINES, sees=("out", "err", "logs")),
    scenario("both to files and console", "--nproc-per-node=2 --redirect=3 --tee=3 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("a copy of standard output", "--nproc-per-node=2 --tee=1 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("a copy of standard error", "--nproc-per-node=2 -t 2 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("one rank to files", "--nproc-per-node=2 --redirects=1:3 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("other streams of other ranks", "--nproc-per-node=2 --tee=0:1,1:2 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("one to files, one copied", "--nproc-per-node=2 -r 0:3 -t 1:3 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("ranks that are shown", "--nproc-per-node=3 --tee=3 --local-ranks-filter=0,2 --log-dir=FOLDER/logs", LINES, sees=("out", "err", "logs")),
    scenario("lines with a text", "--nproc-per-node=2 --redirects=3 --log-dir=FOLDER/logs --duplicate-stdout-filters=two --duplicate-stderr-filters=one",
             LINES + "; sleep 2", sees=("logs",), differs={"logs": None}),  # torchrun 2.15 writes no filtered logs
    scenario("a template for prefixes", "--nproc-per-node=2 --tee=1 --log-dir=FOLDER/logs --role=r --log-line-prefix-template='<${role_name}:${local_rank}:${rank}>'",
             LINES, sees=("raw",)),
    scenario("a template in a variable", "--nproc-per-node=2 --redirects=3 --tee=3 --log-dir=FOLDER/logs", LINES, sees=("raw",),
             environment={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "}),
    scenario("a folder of logs with parents", "--nproc-per-node=1 -r 3 --log-dir=FOLDER/logs/deep/er", LINES, sees=("logs",)),
    scenario("a folder of logs with other files", "--nproc-per-node=1 -r 3 --log-dir=FOLDER", LINES),
    scenario("logs of each attempt", "--nproc-per-node=2 -r 3 --log-dir=FOLDER/logs --max-restarts=1",
             'echo "attempt $TORCHELASTIC_RESTART_COUNT"; mark $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && { await 0; exit 3; }; ' + WAIT,
             sees=("logs",)),
    scenario("many lines of many ranks", "--nproc-per-node=16 --tee=3 --log-dir=FOLDER/logs",
             'i=0; while [ $i -lt 200 ]; do echo "out $RANK.$i"; i=$((i + 1)); done', sees=("out",)),
    scenario("ten megabytes", "--nproc-per-node=2 --redirects=1 --log-dir=FOLDER/logs",
             'dd if=/dev/zero bs=1M count=10 2>/dev/null | tr "\\0" x; say done'),
    # Failures and restarts.
    scenario("a rank exits with 7", "--nproc-per-node=2", "[ $RANK = 1 ] && exit 7; " + WAIT),
    scenario("a rank exits with 138", "--nproc-per-node=2", "[ $RANK = 1 ] && exit 138; exit 0"),
    scenario("a rank is killed", "--nproc-per-node=2", "[ $RANK = 1 ] && kill -9 $$; " + WAIT),
    scenario("a rank crashes", "--nproc-per-node=2", "[ $RANK = 0 ] && kill -SEGV $$; " + WAIT),
    scenario("all ranks fail", "--nproc-per-node=4", "exit 3"),
    scenario("a rank ends early", "--nproc-per-node=2", "[ $RANK = 1 ] || sleep 0.5; say ended"),
    scenario("a rank fails once", "--nproc-per-node=2 --max-restarts=3",
             ATTEMPT + "; [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; [ $RANK = 1 ] && { await 0.0; exit 1; }; " + WAIT),
    scenario("a rank fails always", "--nproc-per-node=2 --max-restarts=2",
             ATTEMPT + "; [ $RANK = 1 ] && { await 0.$TORCHELASTIC_RESTART_COUNT; exit 1; }; " + WAIT),
    scenario("a rank fails always without restarts", "--nproc-per-node=2 --max-restarts=0", "[ $RANK = 1 ] && { " + ATTEMPT + "; exit 1; }; " + WAIT),
    scenario("the others are told to stop", "--nproc-per-node=2",
             "trap 'say stopped; exit 0' TERM; mark $RANK; [ $RANK = 1 ] && { await 0; exit 1; }; " + WAIT),
    scenario("a child of a rank that waits is stopped", "--nproc-per-node=2",
             "[ $RANK = 1 ] && { await child; exit 1; }; (trap 'say child stopped; exit' TERM; mark child; " + WAIT + ") & wait"),
    # torchrun waits 30 s here, whatever the option says.
    scenario("a rank that ignores the end", "--nproc-per-node=2 --shutdown-timeout=1", "[ $RANK = 1 ] && { await 0; exit 1; }; " + WITHOUT_TERM,
             within=20, differs={"in time": True}),
    scenario("a rank that ignores a signal", "--nproc-per-node=2 --shutdown-timeout=1", WITHOUT_TERM, signal="TERM", within=20),
    scenario("the time to stop from a variable", "--nproc-per-node=2", WITHOUT_TERM, signal="TERM", within=20,
             environment={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}),
    scenario("an option outranks the time from a variable", "--nproc-per-node=2 --shutdown-timeout=1", WITHOUT_TERM, signal="TERM", within=20,
             environment={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}),
    scenario("no time to stop", "--nproc-per-node=2 --shutdown-timeout=0", WITHOUT_TERM, signal="TERM", within=20),
    scenario("the launcher is told to terminate", "--nproc-per-node=2", "trap 'say terminated; exit 0' TERM; say ready; " + WAIT, signal="TERM",
             differs={"ends": ["well"]}),
    # Where torchrun is interrupted in the middle of something, it sends its ranks another signal than the one that it has received.
    scenario("the launcher is interrupted", "--nproc-per-node=2", "trap 'say interrupted; exit 0' INT; say ready; " + WAIT, signal="INT", varies=("said",),
             differs={"ends": ["well"], "said": ["0: interrupted", "0: ready", "1: interrupted", "1: ready"]}),
    scenario("the launcher is told with restarts left", "--nproc-per-node=2 --max-restarts=3", "say ready; " + WAIT, signal="TERM"),
    scenario("a signal among those to handle", "--nproc-per-node=1 --signals-to-handle=SIGUSR1", "trap 'say told; exit 0' USR1; say ready; " + WAIT, signal="USR1",
             varies=("said",), differs={"ends": ["well"], "said": ["0: ready", "0: told"]}),
    scenario("a rank's error for the caller", "--nproc-per-node=2", "set 'the cause'; [ $RANK = 1 ] && { " + ERROR + "; exit 1; }; " + WAIT, sees=("parent",)),
    scenario("the first of two errors for the caller", "--nproc-per-node=2",
             "[ $RANK = 0 ] && { await 1; sleep 0.7; set later; } || set first; " + ERROR + "; mark $RANK; exit 1",
             sees=("parent",)),
    scenario("no error for the caller", "--nproc-per-node=2", "exit 1", sees=("parent",)),
    scenario("a success leaves no error", "--nproc-per-node=2", ERROR, sees=("parent",)),
    # Several nodes.
    scenario("two nodes", "--nproc-per-node=2", nodes=TWO_NODES),
    scenario("uneven nodes", "", nodes=[TWO_NODES[0] + " --nproc-per-node=1", TWO_NODES[1] + " --nproc-per-node=3"]),
    scenario("nodes with roles", "", nodes=[TWO_NODES[0] + " --nproc-per-node=1 --role=master", TWO_NODES[1] + " --nproc-per-node=2 --role=worker"]),
    scenario("three nodes of two roles", "", nodes=[f"--nnodes=3 --node-rank={n} --master-addr=127.0.0.1 --master-port=PORT --nproc-per-node={n + 1} --role={'a' if n == 1 else 'b'}" for n in range(3)]),
    scenario("a node that ends later", "--nproc-per-node=1", "[ $RANK = 0 ] || sleep 1; say ended", nodes=TWO_NODES),
    scenario("two nodes at an endpoint", "--nproc-per-node=2 --nnodes=2 " + C10D, 'say "$RANK/$WORLD_SIZE"', nodes=["", ""]),
    scenario("two of one to two nodes", "--nproc-per-node=2 " + ELASTIC, 'say "$RANK/$WORLD_SIZE"', nodes=["", ""]),
    scenario("a failure on one of two nodes at an endpoint", "--nproc-per-node=1 --nnodes=2 " + C10D, "[ $RANK = 0 ] && { sleep 0.5; exit 3; }; " + WAIT, nodes=["", ""],
             within=60),
    scenario("a restart of two nodes at an endpoint", "--nproc-per-node=1 --nnodes=2 --max-restarts=1 " + C10D,
             'if [ -e "$OUT/again" ]; then say again; exit; fi; mark $RANK; [ $RANK = 0 ] && { await 1; : > "$OUT/again"; exit 3; }; ' + WAIT,
             nodes=["", ""], within=60),
    scenario("a failure of one to two nodes", ELASTIC + " --nproc-per-node=2 --max-restarts=0", "exit 1"),
    # What is wrong.
    refused("no script", "--nproc-per-node=2", bare=True),
    refused("a script that is not there", "--nproc-per-node=1", program="missing.py"),
    refused("a program that is not there", "--nproc-per-node=1 --no-python", program="FOLDER/missing", bare=True),
    refused("a program that cannot be executed", "--nproc-per-node=1 --no-python", program="FOLDER/plain", bare=True),
    refused("a module that is not a script", "--module"),
    refused("a module that is not a script, from variables", "", environment={"PET_NO_PYTHON": "1", "PET_MODULE": "1"}, program="JOB", bare=True),
    refused("an unknown option", "--bogus=1"),
    refused("an ambiguous option", "--no 1"),
    refused("an unknown kind of ranks", "--nproc-per-node=unknown"),
    refused("no rank", "--nproc-per-node=0"),
    refused("fewer ranks than none", "--nproc-per-node=-1"),
    refused("GPUs where there are none", "--nproc-per-node=gpu"),
    refused("three numbers of nodes", "--nnodes=2:20:30"),
    refused("no nodes", "--nnodes=0"),
    refused("more nodes at least than at most", "--nnodes=3:2 " + C10D),
    refused("log specs that do not exist", "--logs-specs=DOESNOT_EXIST"),
    refused("an unknown way to start", "--start-method=bogus"),
    refused("an unknown rendezvous", "--rdzv-backend=bogus --rdzv-endpoint=127.0.0.1:PORT"),
    refused("settings without a value", "--rdzv-conf=timeout"),
    refused("restarts that are not a number", "--max-restarts=abc"),
    refused("an interval that is not a number", "--monitor-interval=abc"),
    refused("a node that is not a number", "--node-rank=abc"),
    refused("a port that is not a number", "--master-port=abc"),
    refused("a time that is not a number", "--shutdown-timeout=abc"),
    refused("a negative time", "--shutdown-timeout=-5"),
    refused("a signal that does not exist", "--signals-to-handle=SIGBOGUS", differs={"ends": ["refused"], "said": []}),  # torchrun warns
    refused("streams with a comma at the end", "--redirects=0:1,"),
    refused("streams of two digits", "--redirects=11"),
    refused("streams, of one rank and of all", "--redirects=0:1,1"),
    refused("streams, of all and of one rank", "--tee=1,0:1"),
    refused("streams that do not exist", "--tee=4"),
    refused("a folder of logs that is a file", "-r 3 --log-dir=FOLDER/plain"),
    refused("a handler of events that does not exist", "--event-log-handler=bogus"),
]
