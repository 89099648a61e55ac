// The argument parser: words, one a line.
#include <variant>

#include "launcher/options/command_line.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {"--nproc_per_node\n2\nprog\n--lr\n0.1",
          "-n\n2\n--\nprog",
          "-np=3\n-m\npackage.module\n-x",
          "--nnodes=2\n--node_rank=1\n--master-addr\nhost0\n--master_port\n29500\nprog",
          "--grace\n1e3\n--timeout=0.5\n--restart-backoff=2\n--max_restarts\n3\nprog",
          "--role=%\n--rdzv_endpoint=[::1]:29500\n--rdzv_backend=static\n--standalone\nprog\n\n--help",
          "--prefix=[{rank} {time}] \n-x\nA=b\n-x\nC\n--wdir\n/tmp\nprog",
          "--prefix\n--no_prefix\nprog",
          "--events\nfile\n--dry_run\n--show_env\n--check\n--version\n--help\n-h",
          "-H\nlocalhost:2\n--redirects\n0:3,1:1\n-t\n3\n--log_dir\nlogs\n--local_ranks_filter=0,1\nprog",
          "--gpus\n0,1,GPU-abc\n--bind-to\nnuma\n--stdin\nall\n--store\nrank0\n--exit-code=torchrun\nprog",
          "--signals_to_handle\nSIGTERM,SIGINT\n--debug\n0\n--pass-local-rank\n--run_path\n--virtual-local-rank\nprog",
          "--generate\nman\n--generate=fish",
          "-map-by\nppr:2:node\n-mca\npml\nob1\n-genv\nA\n1\n-p22\n--export=ALL\nprog",
          "-np2\n-vv\n--cpu-bind=none\n-launcher\nssh\n--enable_each_rank_log\nlogs\n-genvlist\nA,B\nprog\n:\n-n\n2",
          "--nproc_per_nod\n2\nprog",
          "--no_\n---\n-\n--=x\n-n=\n\"a\n[x\n{}"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  using namespace launcher;
  Input input(bytes);
  std::vector<std::string> arguments;
  while (!input.is_empty() && arguments.size() < 64) arguments.emplace_back(input.until('\n'));

  const auto result = parse_command_line(arguments);
  if (const auto* exit = std::get_if<ExitRequest>(&result)) {
    require(exit->status == 0 || exit->status == 125, "the status of a refusal is 125");
    require(!exit->text.empty(), "a refusal says why");
    return Outcome::kRefused;
  }
  const auto& program = std::get<Options>(result).program;
  const bool needs_program = std::get<Options>(result).mode == Options::Mode::kRun;
  require(!program.empty() || !needs_program, "a job has a program");
  require(program.size() <= arguments.size() && std::equal(program.rbegin(), program.rend(), arguments.rbegin()),
          "the program is the unchanged end of the command line");
  return Outcome::kAccepted;
}
