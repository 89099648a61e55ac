#include <string>

#include "launcher/nodes/control/secret.h"
#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"

namespace launcher {
namespace {

void declare_store(OptionTable& table, RendezvousOptions& options) {
  using Store = RendezvousOptions::Store;
  table.choice({"--store", "Who hosts the store: ddprun, or rank 0 as in plain torch.distributed",
                "With `rank0` the port is one that was free a moment earlier (one node)."},
               options.store, {{"agent", Store::kLauncher}, {"rank0", Store::kRank0}});
  using Proxy = RendezvousOptions::StoreProxy;
  table.choice({"--store_proxy",
                "Ranks of the other nodes that reach the store through their ddprun: those of the C++ library, or "
                "all, which then get MASTER_ADDR=127.0.0.1",
                "[One connection per node](many-nodes.md#one-connection-per-node)."},
               options.store_proxy, {{"library", Proxy::kLibrary}, {"all", Proxy::kAll}, {"off", Proxy::kOff}});
}

void declare_times(OptionTable& table, RendezvousOptions& options) {
  table.seconds({"--join_timeout", "Longest time until all nodes have joined",
                 "The value of the node with the store applies to all nodes that have arrived."},
                options.join_timeout);
  table.seconds(
      {"--node_timeout",
       "Several nodes: a launcher that sends nothing for this long counts as lost; shorter interruptions of the "
       "network are survived",
       "[Interruptions](many-nodes.md#interruptions-of-the-network)."},
      options.node_timeout, std::chrono::milliseconds(1));
  table.choice({"--node_order", "How `--rdzv_backend c10d` numbers the nodes: as they arrive, or by their host names"},
               options.order_by_host, {{"arrival", false}, {"host", true}});
  table.seconds({"--start_timeout", "Longest time until every rank has reached the store; the missing ones are named",
                 "When the time expires, the job is stopped with exit status 124."},
                options.start_timeout, std::chrono::milliseconds(1));
}

}  // namespace

void declare_rendezvous(OptionTable& table, RendezvousOptions& options) {
  table.group("Rendezvous and store");
  table.flag(torchrun_option({"--standalone", "One node with a free port, as is the default for one node",
                              "On the command line it overrides PET_NNODES, PET_NODE_RANK and PET_MASTER_PORT."}),
             options.standalone);
  table.text({"--master_addr,--master_address HOST",
              "Address of node 0; one node always uses the default",
              "",
              {.unset = RendezvousOptions::kLoopback, .is_torchrun_option = true}},
             options.master_addr);
  table.port({"--master_port",
              "Port of the store on node 0",
              "",
              {.unset = "one node: a free port; several: " + std::to_string(RendezvousOptions::kStaticPort),
               .is_torchrun_option = true}},
             options.master_port, 0);
  declare_store(table, options);
  table.text({"--iface NAME|CIDR",
              "Network interface of gloo and NCCL: a name, an address, or a network such as 10.0.0.0/8",
              "[Which network](many-nodes.md#which-network).",
              {.unset = "the one that reaches node 0"}},
             options.interface);
  table.text({"--rdzv_id NAME",
              "Name of the job, TORCHELASTIC_RUN_ID; equal on all nodes",
              "",
              {.unset = "one node: random; several: none", .is_torchrun_option = true, .may_be_empty = true}},
             options.rdzv_id);
  table.text({"--rdzv_secret_file FILE", "Several nodes: only launchers with the same secret may join",
              "From " + std::to_string(control::Secret::kMinSize) + " to " + std::to_string(control::Secret::kMaxSize) +
                  " bytes; [who can reach what](many-nodes.md#who-can-reach-what)."},
             options.secret_file);
  table.text({"--local_addr HOST",
              "Name or address under which the other nodes find this one",
              "Used if the number of nodes may change, and with `etcd`.",
              {.unset = "its host name", .is_torchrun_option = true, .may_be_empty = true}},
             options.local_addr);
  declare_times(table, options);
}

}  // namespace launcher
