// The command line as plain values, with a struct for each group of options. The initialiser of a member is the default
// of its option, and the only place where it is written: --help and all other texts read it from here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/signals.h"
#include "launcher/plan/stream_selection.h"

namespace launcher {

// How long the network may be interrupted without ending the job: longer than a switch, a bond or the migration of a
// virtual machine needs. The end of a launcher is detected at once.
inline constexpr std::chrono::milliseconds kNodeTimeout{10'000};

struct ProcessOptions {
  // Values of nproc_per_node that depend on the machine.
  static constexpr int kOnePerCpu = -1;
  static constexpr int kOnePerGpu = -2;
  static constexpr int kUnset = 0;              // as many as -H has slots, else 1
  static constexpr int kAutomatic = -3;         // one per GPU, or without any one per CPU
  static constexpr int kMaxLocalRanks = 65536;  // far above what one machine can start; catches typing errors

  int nnodes = 1;  // the largest number if it may change
  int node_rank = 0;
  int nproc_per_node = kUnset;
  bool counts_all_ranks =
      false;               // nproc_per_node was given as -n or -np: with several hosts it counts the ranks of all hosts
  bool module = false;     // -m: the program is a Python module
  bool run_path = false;   // --run_path: the program is a Python script whatever its name
  bool no_python = false;  // --no_python: execute a .py file directly
  bool expand_arguments = false;  // --expand_arguments: ${rank} and others in the program's arguments
  std::string role = "default";
  std::vector<std::string> exported{};  // "NAME=value", or "NAME": as in ddprun's own environment
  std::string working_folder{};         // unset: ddprun's
  std::optional<std::string>
      local_rank_argument{};  // --pass_local_rank: --NAME=<local rank> becomes the first argument
};

struct SshOptions {
  std::string command = "ssh";  // the command and its first words; it must accept ssh's options
  std::optional<std::uint16_t> port = std::nullopt;
  std::string identity{};                     // the file of a private key
  std::chrono::milliseconds timeout{30'000};  // for the connection, and for silence after which it is lost
  int fanout = 16;              // how many connections one ddprun opens; with more hosts the connections form a tree
  std::string remote_ddprun{};  // unset: where this ddprun is, else in PATH
};

struct HostOptions {
  std::string hosts{};      // of -H
  std::string host_file{};  // --hostfile
  std::string include{};    // deepspeed's selection of hosts
  std::string exclude{};
  SshOptions ssh{};
};

struct ResourceOptions {
  enum class Binding { kNone, kCore, kNuma };

  Binding binding = Binding::kNone;
  std::vector<std::string> gpus{};  // --gpus: indices or UUIDs; unset: those of CUDA_VISIBLE_DEVICES
  bool virtual_local_rank = false;  // each rank sees only one GPU, and LOCAL_RANK is 0
};

struct RendezvousOptions {
  enum class Store { kLauncher, kRank0 };
  // On a node that does not host the store: which ranks reach it through their ddprun.
  enum class StoreProxy { kOff, kLibrary, kAll };

  static constexpr const char* kLoopback = "127.0.0.1";  // the address for one node, and for several without an address
  // The port for several nodes if none is given: torchrun's, and etcd's own.
  static constexpr std::uint16_t kStaticPort = 29500;
  static constexpr std::uint16_t kC10dPort = 29400;
  static constexpr std::uint16_t kEtcdPort = 2379;

  bool standalone = false;
  std::string master_addr{};                                // unset: kLoopback
  bool has_master_addr = false;                             // master_addr was set
  std::optional<std::uint16_t> master_port = std::nullopt;  // unset: one node binds a free port
  std::string rdzv_backend{};                               // unset: static
  std::string rdzv_endpoint{};                      // HOST[:PORT], torchrun's form of master_addr and master_port
  std::string rdzv_id{};                            // unset: random on one node, "none" on several, as torchrun has it
  std::chrono::milliseconds join_timeout{900'000};  // for all nodes to arrive
  std::chrono::milliseconds node_timeout = kNodeTimeout;     // silence after which a node is lost
  std::optional<std::chrono::milliseconds> start_timeout{};  // for all ranks to reach the store
  std::string local_addr{};                                  // the name of this node for others; unset: its host name
  std::string secret_file{};                                 // --rdzv_secret_file; unset: any launcher may join
  bool order_by_host = false;  // nodes without numbers are ordered by host name, not by arrival
  std::string interface {};    // --iface: name, address or network; unset: the interface that reaches node 0
  Store store = Store::kLauncher;
  StoreProxy store_proxy = StoreProxy::kLibrary;

  bool uses_etcd() const { return rdzv_backend == "etcd" || rdzv_backend == "etcd-v2"; }
};

struct ElasticOptions {
  int min_nodes = 0;                            // of --nnodes MIN:MAX; 0: the number of nodes is fixed
  std::chrono::milliseconds last_call{30'000};  // the wait for more than min_nodes before the first round
  bool join_restart = false;                    // a node that arrives later joins at once
  int host_failures = 0;                        // a host with so many failures is left out; 0: no host is left out
  int restarts_per_hour = 0;                    // 0: the limit is --max_restarts

  bool is_on() const { return min_nodes > 0; }
};

struct StandardInput {
  enum class To { kRank, kAll, kNone };
  To to = To::kRank;
  int rank = 0;  // the rank in the whole job
};

struct OutputOptions {
  std::optional<std::string> prefix = std::nullopt;  // the template of the prefix of each line of a rank
  std::string line_prefix_template{};                // --log_line_prefix_template, in torchrun's form; unset: none
  bool no_prefix = false;                            // ranks write directly to ddprun's own descriptors
  std::string log_folder{};                          // for the ranks' output and error files; unset: none
  StreamSelection redirects{};                       // written to a file only
  StreamSelection tee{};                             // written to a file and shown
  std::vector<int> console_ranks{};                  // local ranks whose output is shown; empty: all
  std::vector<std::string>
      output_filters{};  // lines of standard output that contain one of these texts are copied to a file
  std::vector<std::string> error_filters{};  // the same for standard error
  std::string output_folder{};               // --output_filename: a folder per rank for copies of its output
  StandardInput standard_input{};
  std::string event_file{};  // one JSON line per event of the job; unset: none
};

struct EndingOptions {
  std::chrono::milliseconds grace{30'000};
  std::optional<std::chrono::milliseconds> shutdown_timeout = std::nullopt;  // torchrun's option for `grace`
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;           // for the whole job
  int max_restarts = 0;
  std::chrono::milliseconds restart_backoff{0};
  bool keep_daemons = false;
  bool torchrun_exit_code = false;  // --exit_code torchrun: the status is 1 for any failure of a rank
  std::vector<int> stop_signals = default_stop_signals();  // --signals_to_handle: the signals that end the job
  std::optional<int> debug_rank = std::nullopt;            // this rank runs under gdb in this terminal
};

struct WatchOptions {
  enum class OnHang { kReport, kStop, kRestart };
  struct StepRange {
    std::uint64_t first = 0;
    std::uint64_t last = 0;  // not included
  };

  std::chrono::milliseconds hang_timeout{
      120'000};                   // how long no rank makes progress before a hang is reported; 0: never
  bool has_hang_timeout = false;  // it was given, so jobs that do not train are reported, too
  OnHang on_hang = OnHang::kReport;
  std::string on_hang_command{};  // for the shell; unset: none
  double straggler_threshold =
      0.1;  // how far a rank's own time must be above the median of all; 0: no rank is reported
  std::string metrics_host = "127.0.0.1";                    // --metrics_port: where metrics are served
  std::optional<std::uint16_t> metrics_port = std::nullopt;  // unset: they are not
  std::string timeline_file{};                               // --timeline; unset: none
  std::optional<StepRange> timeline_steps = std::nullopt;    // unset: everything is recorded
};

struct Options : ProcessOptions,
                 HostOptions,
                 ResourceOptions,
                 RendezvousOptions,
                 OutputOptions,
                 EndingOptions,
                 WatchOptions {
  enum class Mode { kRun, kDryRun, kShowEnvironment, kCheck, kExplain, kGenerate, kCmakePrefixPath, kVersion, kHelp };

  Mode mode = Mode::kRun;
  std::string generated{};  // --generate: what to print
  std::string explained{};  // --explain: a message
  ElasticOptions elastic{};

  bool is_separated = false;           // the program was given after --
  std::vector<std::string> program{};  // program and arguments, byte for byte as given

  // Where the values of this node's place come from: the command line, a variable or the scheduler, one line for each.
  std::vector<std::string> origins{};

  std::vector<std::string> remarks{};              // about the command line, printed before the job starts
  std::vector<std::string> notes{};                // about variables without effect, one line for each
  std::map<std::string, std::string> variables{};  // {"--log_dir", "PET_LOG_DIR"}: of options that nobody has typed
  std::vector<std::string> own_arguments{};        // the arguments before the program, each `--name` or `--name=value`
  std::optional<int> part_descriptor =
      std::nullopt;  // set for one node of a job that another ddprun started; it contains the job's secret
};

}  // namespace launcher
