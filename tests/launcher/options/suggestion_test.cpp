#include "launcher/options/suggestion.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

const std::vector<std::string> kNames = {"nproc_per_node", "nnodes", "node_rank", "tee",    "timeout",   "grace",
                                         "gpus",           "np",     "log_dir",   "module", "no_prefix", "prefix"};

std::string nearest(std::string_view mistyped) {
  return nearest_name(mistyped, kNames);
}

TEST_CASE("NearestName: one or two typing errors away") {
  CHECK(nearest("nnode") == "nnodes");
  CHECK(nearest("nndoes") == "nnodes");  // letters exchanged
  CHECK(nearest("tieout") == "timeout");
  CHECK(nearest("timeouut") == "timeout");
  CHECK(nearest("gpsu") == "gpus");
  CHECK(nearest("no_prefx") == "no_prefix");
  CHECK(nearest("prfix") == "prefix");
}

TEST_CASE("NearestName: the beginning of a name, also with a typing error") {
  CHECK(nearest("log") == "log_dir");
  CHECK(nearest("ti") == "timeout");
  CHECK(nearest("time") == "timeout");
  CHECK(nearest("nprc") == "nproc_per_node");
  CHECK(nearest("nproc") == "nproc_per_node");
  CHECK(nearest("nproc_per_nodes_and_more").empty());
}

TEST_CASE("NearestName: there is none that has nothing of what was typed") {
  CHECK(nearest("").empty());
  CHECK(nearest("x").empty());
  CHECK(nearest("ab").empty());  // two errors away from every name of two letters
  CHECK(nearest("zebra").empty());
  CHECK(nearest("seed").empty());  // too short to be tee with two errors
  CHECK(nearest("\xff\xfe").empty());
  CHECK(nearest(std::string(10'000, 'n')).empty());
  CHECK(nearest_name("tee", {}).empty());
}

TEST_CASE("NearestName: a name itself is the nearest, and of equals the first") {
  for (const std::string& name : kNames) CHECK(nearest(name) == name);
  const std::vector<std::string> equals = {"aaab", "aaac"};
  CHECK(nearest_name("aaad", equals) == "aaab");
}

}  // namespace
}  // namespace launcher
