// What each scheduler's variables tell ddprun, and which of several count.
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/options.h"
#include "launcher/plan/scheduled_options.h"
#include "launcher/plan/schedulers/variables.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Variables = std::map<std::string, std::string>;

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

ProcessContext context(const Variables& variables, const std::string& host = "n02",
                       const std::map<std::string, std::string>& files = {}) {
  const auto find = [](const auto& map, const std::string& name) -> std::optional<std::string> {
    const auto found = map.find(name);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  };
  return {.variable = [=](const std::string& name) { return find(variables, name); },
          .host_name = host,
          .file = [=](const std::string& path) { return find(files, path); }};
}

Options chosen_options(const ProcessContext& from, const GivenOptions& given = {}, Options options = {}) {
  apply_scheduler(from, given, options);
  return options;
}

std::string origins(const Options& options) {
  std::string text;
  for (const std::string& line : options.origins) text += line + "\n";
  return text;
}

Options options_with(void (*set)(Options& given)) {
  Options options;
  set(options);
  return options;
}

std::string refusal(const ProcessContext& from, const GivenOptions& given = {}, const Options& options = {}) {
  try {
    chosen_options(from, given, options);
  } catch (const LaunchError& error) {
    return error.what();
  }
  return "no refusal";
}

// The second node of two, as each system tells it.
const Variables kSlurm{{"SLURM_JOB_ID", "7"},
                       {"SLURM_JOB_NUM_NODES", "2"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_PROCID", "1"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_STEP_NODELIST", "n[01-02]"},
                       {"SLURM_JOB_NODELIST", "n[01-02]"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                         {"MASTER_ADDR", "head"}};
const Variables kMpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}, {"MASTER_ADDR", "head"}};
const Variables kJsrun{
    {"JSM_NAMESPACE_RANK", "1"},       {"JSM_NAMESPACE_SIZE", "2"}, {"JSM_NAMESPACE_LOCAL_RANK", "0"},
    {"JSM_NAMESPACE_LOCAL_SIZE", "1"}, {"LSB_JOBID", "4711"},       {"LSB_MCPU_HOSTS", "batch5 1 h22n07 42 h22n08 42"}};
const Variables kLsf{{"LSB_JOBID", "4711"}, {"LSB_MCPU_HOSTS", "n01 4 n02 4"}};
const Variables kPyTorchJob{{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "job-master-0"},
                            {"MASTER_PORT", "23456"},
                            {"PYTHONUNBUFFERED", "0"}};
const Variables kPai = with(kPyTorchJob, {{"NPROC_PER_NODE", "8"}});
const Variables kLeaderWorkerSet{
    {"LWS_GROUP_SIZE", "2"}, {"LWS_WORKER_INDEX", "1"}, {"LWS_LEADER_ADDRESS", "lws-0.lws.default"}};
const Variables kSageMaker{{"SM_HOSTS", R"(["algo-2","algo-1"])"}, {"SM_CURRENT_HOST", "algo-2"}, {"SM_NUM_GPUS", "8"}};
const Variables kAwsBatch{{"AWS_BATCH_JOB_ID", "a1b2#1"},
                          {"AWS_BATCH_JOB_NUM_NODES", "2"},
                          {"AWS_BATCH_JOB_NODE_INDEX", "1"},
                          {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "0"},
                          {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.1"}};
const Variables kVertex{
    {"CLUSTER_SPEC",
     R"({"cluster":{"workerpool0":["cmle-0:2222"],"workerpool1":["cmle-1:2223"]},"environment":"cloud",)"
     R"("task":{"type":"workerpool1","index":0,"trial":"1"}})"}};
const Variables kTfConfig{
    {"TF_CONFIG", R"({"cluster":{"worker":["w-0:2222"],"chief":["c:2222"]},"task":{"type":"worker","index":"0"}})"}};

struct Case {
  const char* name;
  Variables variables;
  std::string master_addr;
  int master_port;  // 0: the default
  std::string rdzv_id;
  int nproc_per_node = Options::kUnset;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"Slurm", kSlurm, "n01", 15007, "7.0"},
      {"Open MPI", kOpenMpi, "head", 0, ""},
      {"Open MPI on Azure ML", with(without(kOpenMpi, "MASTER_ADDR"), {{"AZ_BATCH_MASTER_NODE", "10.0.0.4:6000"}}),
       "10.0.0.4", 0, ""},
      {"Open MPI below Slurm", with(kSlurm, with(kOpenMpi, {{"SLURM_NODEID", "0"}})), "head", 0, ""},
      {"MPICH", kMpich, "head", 0, ""},
      {"MPICH below Slurm", with(kSlurm, kMpich), "head", 0, ""},
      {"srun --mpi=pmi2", with(kSlurm, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "n01", 15007, "7.0"},
      {"jsrun", kJsrun, "h22n07", 17071, "4711"},
      {"blaunch", kLsf, "n01", 17071, "4711"},
      {"PyTorchJob v1", kPyTorchJob, "job-master-0", 23456, ""},
      {"PAI", kPai, "job-master-0", 23456, "", 8},
      {"LeaderWorkerSet", kLeaderWorkerSet, "lws-0.lws.default", 0, ""},
      {"SageMaker", kSageMaker, "algo-1", 7777, ""},
      {"AWS Batch", kAwsBatch, "10.0.0.1", 0, "a1b2"},
      {"Vertex AI", kVertex, "cmle-0", 2222, ""},
      {"TF_CONFIG", kTfConfig, "c", 2222, ""},
      {"PyTorchJob, an indexed Job", with(kPyTorchJob, {{"JOB_COMPLETION_INDEX", "1"}}), "job-master-0", 23456, ""},
      {"Vertex AI says it twice",
       with(kVertex, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "cmle-0"}, {"MASTER_PORT", "3333"}}),
       "cmle-0", 3333, ""},
  };
  return all;
}

TEST_CASE("Schedulers: each tells the second of two nodes its place") {
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    const Options options = chosen_options(context(one.variables));
    CHECK(options.nnodes == 2);
    CHECK(options.node_rank == 1);
    CHECK(options.master_addr == one.master_addr);
    if (std::string(one.name) != "jsrun" && std::string(one.name) != "blaunch") {
      CHECK(options.master_port.value_or(0) == one.master_port);
    }
    CHECK(options.rdzv_id == one.rdzv_id);
    CHECK(options.nproc_per_node == one.nproc_per_node);
  }
}

TEST_CASE("Schedulers: what was given counts more, each option for itself") {
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    const GivenOptions given = {{"nnodes", "PET_NNODES"},
                                {"node_rank", "the command line"},
                                {"master_addr", "PET_MASTER_ADDR"},
                                {"master_port", "PET_MASTER_PORT"},
                                {"rdzv_id", "the command line"}};
    const Options mine = options_with([](Options& given) {
      given.nnodes = 4;
      given.node_rank = 3;
      given.master_addr = "mine";
      given.master_port = 77;
      given.rdzv_id = "my";
    });
    const Options options = chosen_options(context(one.variables), given, mine);
    CHECK(options.nnodes == 4);
    CHECK(options.node_rank == 3);
    CHECK(options.master_addr == "mine");
    CHECK(options.master_port == 77);
    CHECK(options.rdzv_id == "my");
    CHECK_THAT(origins(options), ContainsSubstring("--nnodes 4: PET_NNODES") &&
                                     ContainsSubstring("--node_rank 3: the command line") &&
                                     ContainsSubstring("--master_addr mine: PET_MASTER_ADDR"));
    const Options other = chosen_options(context(one.variables), {{"master_addr", "the command line"}},
                                         options_with([](Options& given) { given.master_addr = "mine"; }));
    CHECK(other.master_addr == "mine");
    CHECK(other.node_rank == 1);
    const Options endpoint = chosen_options(context(one.variables), {{"rdzv_endpoint", "the command line"}},
                                            options_with([](Options& given) { given.rdzv_endpoint = "mine:5"; }));
    CHECK(endpoint.master_addr.empty());
    CHECK_FALSE(endpoint.master_port);
  }
}

TEST_CASE("Schedulers: who asks for one node gets one") {
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    CHECK(chosen_options(context(one.variables), {{"nnodes", "PET_NNODES"}},
                         options_with([](Options& given) { given.nnodes = 1; }))
              .nnodes == 1);
    CHECK(chosen_options(context(one.variables), {{"standalone", "the command line"}},
                         options_with([](Options& given) { given.standalone = true; }))
              .nnodes == 1);
    CHECK(chosen_options(context(one.variables), {{"hosts", "the command line"}},
                         options_with([](Options& given) { given.hosts = "localhost:2"; }))
              .nnodes == 1);
  }
}

TEST_CASE("Schedulers: another number of nodes than was started is refused") {
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    const std::string text = refusal(context(one.variables), {{"nnodes", "PET_NNODES"}},
                                     options_with([](Options& given) { given.nnodes = 3; }));
    CHECK_THAT(text, ContainsSubstring("--nnodes 3 (PET_NNODES), but") && ContainsSubstring("on 2 nodes ("));
  }
}

TEST_CASE("Schedulers: in a rank of another launcher none counts") {
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    const Options options =
        chosen_options(context(with(one.variables, {{"RANK", "3"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}})));
    CHECK(options.nnodes == 1);
    CHECK_THAT(origins(options), ContainsSubstring("in a rank of another launcher (RANK=3, LOCAL_RANK=1)"));
  }
}

TEST_CASE("Schedulers: without any it is one node") {
  for (const Variables& variables : {Variables{},
                                     Variables{{"RANK", "1"}},
                                     {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
                                     {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
                                     {{"SM_HOSTS", ""}, {"SM_CURRENT_HOST", ""}},
                                     {{"TF_CONFIG", R"({"environment":"cloud"})"}},
                                     {{"JOB_COMPLETION_INDEX", "3"}}}) {
    const Options options = chosen_options(context(variables));
    CHECK(options.nnodes == 1);
    CHECK(options.node_rank == 0);
    CHECK(options.master_addr.empty());
    CHECK(options.grace == std::chrono::seconds(30));
  }
}

TEST_CASE("Schedulers: an indexed Job is one job when the number of nodes is given") {
  const Options options = chosen_options(context({{"JOB_COMPLETION_INDEX", "1"}}), {{"nnodes", "the command line"}},
                                         options_with([](Options& given) { given.nnodes = 2; }));
  CHECK(options.node_rank == 1);
}

TEST_CASE("Schedulers: nodes that are numbered as they come get no number") {
  const Options options = chosen_options(context(kSlurm), {{"rdzv_backend", "the command line"}},
                                         options_with([](Options& given) { given.rdzv_backend = "c10d"; }));
  CHECK(options.nnodes == 2);
  CHECK(options.node_rank == 0);
  CHECK(options.master_addr == "n01");
}

TEST_CASE("Schedulers: an address that was set beside the scheduler's counts more") {
  const Options options = chosen_options(context(with(kSlurm, {{"MASTER_ADDR", "n01-ib"}, {"MASTER_PORT", "29999"}})));
  CHECK(options.master_addr == "n01-ib");
  CHECK(options.master_port == 29999);
  UNSCOPED_INFO("the pod that is to listen is told that it is localhost, where no other reaches it");
  const Options first = chosen_options(context(with(kPyTorchJob, {{"RANK", "0"}, {"MASTER_ADDR", "localhost"}})));
  CHECK(first.node_rank == 0);
  CHECK(first.master_addr.empty());
}

TEST_CASE("Schedulers: ddprun is started once on each node, or says how") {
  const Variables twice_slurm = with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  CHECK_THAT(refusal(context(twice_slurm)),
             ContainsSubstring("srun started ddprun 2 times on this node (SLURM_STEP_TASKS_PER_NODE=2(x2))"));
  CHECK_THAT(refusal(context(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}))),
             ContainsSubstring("mpirun --map-by ppr:1:node"));
  CHECK_THAT(refusal(context(with(kMpich, {{"MPI_LOCALNRANKS", "2"}}))), ContainsSubstring("mpirun -ppn 1"));
  CHECK_THAT(refusal(context(with(kJsrun, {{"JSM_NAMESPACE_LOCAL_SIZE", "2"}}))), ContainsSubstring("jsrun -r 1"));
  CHECK_THAT(refusal(context({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})),
             ContainsSubstring("give --nnodes and --node_rank"));
  UNSCOPED_INFO("many jobs of one node each");
  CHECK(chosen_options(context(twice_slurm), {{"nnodes", "the command line"}},
                       options_with([](Options& given) { given.nnodes = 1; }))
            .nnodes == 1);
}

TEST_CASE("Schedulers: a batch script of Slurm's is not a step") {
  Variables batch = without(kSlurm, "SLURM_STEP_ID");
  CHECK_THAT(refusal(context(batch)),
             ContainsSubstring("SLURM_JOB_NUM_NODES=2") && ContainsSubstring("srun --ntasks-per-node=1"));
  CHECK(chosen_options(context(with(batch, {{"SLURM_JOB_NUM_NODES", "1"}}))).nnodes == 1);
  UNSCOPED_INFO("nor is a shell of salloc's, where one tries things");
  CHECK(chosen_options(context(without(batch, "SLURM_PROCID"))).nnodes == 1);
  CHECK(chosen_options(context(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_JOB_NUM_NODES", "1"}}))).nnodes ==
        1);
}

TEST_CASE("Schedulers: ddprun ends its ranks before Slurm kills it") {
  using std::chrono::milliseconds;
  const auto grace = [](const std::string& file, const GivenOptions& given = {}) {
    const std::map<std::string, std::string> files = {{"/etc/slurm/slurm.conf", file}};
    return chosen_options(context(kSlurm, "n02", files), given).grace;
  };
  UNSCOPED_INFO("Slurm's default is 30 s");
  CHECK(grace("") == milliseconds(25'000));
  CHECK(grace("ClusterName=x\n# KillWait=2\nKillWait=6\n") == milliseconds(5'000));
  CHECK(grace("  killwait=12 # seconds") == milliseconds(10'000));
  CHECK(grace("KillWait=1") == milliseconds(500));
  CHECK(grace("KillWait=600") == milliseconds(30'000));
  for (const char* odd :
       {"KillWait", "KillWait=", "KillWait=x", "KillWait=-1", "KillWait=99999999999999999999", "XKillWait=2"}) {
    CAPTURE(odd);
    CHECK(grace(odd) == milliseconds(25'000));
  }
  UNSCOPED_INFO("what was given counts");
  CHECK(grace("KillWait=6", {{"grace", "the command line"}}) == milliseconds(30'000));
  UNSCOPED_INFO("below mpirun too");
  CHECK(chosen_options(context(with(kSlurm, kOpenMpi))).grace == milliseconds(25'000));
  CHECK(chosen_options(context(with(kSlurm, {{"SLURM_CONF", "/x"}}), "n02", {{"/x", "KillWait=4"}})).grace ==
        milliseconds(3'000));
}

TEST_CASE("Schedulers: Batch's main node is node 0 wherever it stands") {
  const auto rank = [](const std::string& index) {
    return chosen_options(context(with(kAwsBatch, {{"AWS_BATCH_JOB_NUM_NODES", "4"},
                                                   {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "2"},
                                                   {"AWS_BATCH_JOB_NODE_INDEX", index}})))
        .node_rank;
  };
  CHECK(std::vector{rank("0"), rank("1"), rank("2"), rank("3")} == std::vector{1, 2, 0, 3});
}

TEST_CASE("Schedulers: two that contradict each other are refused") {
  CHECK_THAT(refusal(context(with(kVertex, with(kPyTorchJob, {{"RANK", "0"}})))),
             ContainsSubstring("contradict each other"));
  CHECK_THAT(refusal(context(with(kSageMaker, with(kPyTorchJob, {{"WORLD_SIZE", "16"}})))),
             ContainsSubstring("contradict each other"));
  CHECK_THAT(refusal(context(with(kPyTorchJob, {{"JOB_COMPLETION_INDEX", "0"}}))),
             ContainsSubstring("RANK=1") && ContainsSubstring("JOB_COMPLETION_INDEX=0"));
  UNSCOPED_INFO("a PyTorchJob's WORLD_SIZE may count processes, where PET_NNODES counts pods");
  CHECK(chosen_options(context(with(kPyTorchJob, {{"WORLD_SIZE", "16"}, {"PET_NNODES", "2"}}))).nnodes == 2);
}

TEST_CASE("Schedulers: what cannot be right is refused and named") {
  struct Odd {
    Variables variables;
    std::string text;
  };
  const std::vector<Odd> all = {
      {with(kSlurm, {{"SLURM_NODEID", "2"}}), "SLURM_NODEID=2 but SLURM_STEP_NUM_NODES=2"},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "n[1-"}}), "SLURM_STEP_NODELIST: 'n[1-'"},
      {without(kSlurm, "SLURM_NODEID"), "SLURM_NODEID is not set"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}}), "OMPI_COMM_WORLD_RANK=2 is not below OMPI_COMM_WORLD_SIZE=2"},
      {with(kMpich, {{"PMI_SIZE", "-1"}}), "PMI_SIZE=-1: expected a whole number"},
      {with(kPyTorchJob, {{"RANK", "one"}}), "RANK=one: expected a whole number"},
      {with(kPyTorchJob, {{"MASTER_PORT", "http"}}), "MASTER_PORT=http: expected a whole number"},
      {with(kPai, {{"NPROC_PER_NODE", "0"}}), "NPROC_PER_NODE=0"},
      {with(kLeaderWorkerSet, {{"LWS_WORKER_INDEX", "2"}}), "LWS_WORKER_INDEX=2 is not below LWS_GROUP_SIZE=2"},
      {with(kSageMaker, {{"SM_CURRENT_HOST", "algo-3"}}), "SM_CURRENT_HOST=algo-3 is not in SM_HOSTS"},
      {with(kSageMaker, {{"SM_HOSTS", "algo-1,algo-2"}}), "expected a JSON list of names"},
      {with(kSageMaker, {{"SM_HOSTS", "[1,2]"}}), "expected a JSON list of names"},
      {with(kSageMaker, {{"SM_HOSTS", "[]"}}), "expected a JSON list of names"},
      {without(kAwsBatch, "AWS_BATCH_JOB_MAIN_NODE_INDEX"), "AWS_BATCH_JOB_MAIN_NODE_INDEX is not set"},
      {with(kAwsBatch, {{"AWS_BATCH_JOB_MAIN_NODE_INDEX", "2"}}), "AWS_BATCH_JOB_MAIN_NODE_INDEX=2"},
      {{{"CLUSTER_SPEC", R"("cluster")"}}, "CLUSTER_SPEC: it is not a JSON object"},
      {{{"CLUSTER_SPEC", R"({"cluster":[]})"}}, R"(it has no object "cluster")"},
      {{{"CLUSTER_SPEC", R"({"cluster":{}})"}}, R"(it has no object "task")"},
      {{{"CLUSTER_SPEC", R"({"cluster":{},"task":{"type":"workerpool0","index":-1}})"}}, R"("index")"},
      {{{"CLUSTER_SPEC", R"({"cluster":{"workerpool0":"a"},"task":{"type":"workerpool0","index":0}})"}},
       "is not a list of machines"},
      {{{"CLUSTER_SPEC", R"({"cluster":{"workerpool0":["a:x"]},"task":{"type":"workerpool0","index":0}})"}},
       "has no port"},
      {{{"TF_CONFIG", R"({"cluster":{"worker":["a:1","b:1"],"ps":["c:1"]},"task":{"type":"ps","index":0}})"}},
       "is not one of the 2 machines that train"},
      {with(kLsf, {{"LSB_MCPU_HOSTS", "n01 4 n03 4"}}), "this host, n02, is not in LSB_MCPU_HOSTS=n01 4 n03 4"},
      {with(kLsf, {{"LSB_MCPU_HOSTS", "n01"}}), "expected HOST SLOTS"},
      {{{"JOB_COMPLETION_INDEX", "-"}}, "JOB_COMPLETION_INDEX=-"},
  };
  for (const Odd& one : all) {
    CAPTURE(one.text);
    CHECK_THAT(refusal(context(one.variables)), ContainsSubstring(one.text));
    UNSCOPED_INFO("and holds up nobody who says where each node stands, or wants one");
    CHECK(chosen_options(context(without(one.variables, "MASTER_PORT")),
                         {{"nnodes", "the command line"}, {"node_rank", "the command line"}},
                         options_with([](Options& options) {
                           options.nnodes = 2;
                           options.node_rank = 1;
                         }))
              .node_rank == 1);
    CHECK(chosen_options(context(one.variables), {{"standalone", "PET_STANDALONE"}}).nnodes == 1);
  }
}

TEST_CASE("Schedulers: what a variable holds cannot act on a terminal, nor fill it") {
  const std::string text = refusal(context(with(kPyTorchJob, {{"RANK", "\x1b[2J\n" + std::string(100'000, 'x')}})));
  CHECK(text.size() < 300);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
}

// Any value of any variable is either understood or refused in one line.
TEST_CASE("Schedulers: damaged values crash nothing") {
  std::mt19937 random(7);
  const auto below = [&](std::size_t size) { return std::uniform_int_distribution<std::size_t>(0, size - 1)(random); };
  const std::vector<std::string> pieces = {"",   "0",  "-1",   "999999999999", "[",  "]",   "{",    "}",
                                           ",",  "\"", ":",    "(x",           ")",  "[1-", "null", "\n",
                                           "\0", " ",  "\xff", "cluster",      "1e9"};
  for (int round = 0; round < 20'000; ++round) {
    Variables variables = cases()[below(cases().size())].variables;
    for (std::size_t change = below(3) + 1; change > 0; --change) {
      auto entry = std::next(variables.begin(), static_cast<std::ptrdiff_t>(below(variables.size())));
      std::string& value = entry->second;
      value.replace(below(value.size() + 1), below(4), pieces[below(pieces.size())]);
    }
    try {
      const Options options = chosen_options(context(variables));
      CHECK((options.nnodes >= 1 && options.node_rank >= 0 && options.node_rank <= (1 << 16)));
    } catch (const LaunchError& error) {
      CHECK(std::string(error.what()).find('\x1b') == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace launcher
