#include "comm/core/backend_map.h"

#include <sstream>
#include <stdexcept>

namespace ddp {

std::string BackendMap::text() const {
  if (cpu == cuda) return cpu;
  if (cpu.empty() && cuda == "nccl") return cuda;
  if (cpu.empty()) return "cuda:" + cuda;
  if (cuda.empty()) return "cpu:" + cpu;
  return "cpu:" + cpu + ",cuda:" + cuda;
}

BackendMap parse_backend_map(const std::string& text) {
  const auto fail = [&text](const std::string& why) {
    throw std::invalid_argument("process group backend '" + text + "': " + why +
                                ". Use 'gloo', 'nccl' or a list such as 'cpu:gloo,cuda:nccl'.");
  };
  // Named by torch.distributed, which has it only in builds from source with an MPI compiler.
  if (text.find("mpi") != std::string::npos) {
    fail(
        "LibTorch's builds have no MPI backend (no ProcessGroupMPI inside). mpirun can start the ranks all the same: "
        "its variables are read, and gloo or nccl connects them");
  }
  if (text == "gloo" || text == "local") return {.cpu = text, .cuda = text};
  if (text == "nccl") return {.cpu = "", .cuda = "nccl"};

  BackendMap map;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto colon = part.find(':');
    if (colon == std::string::npos) fail("'" + part + "' is no known backend");
    const std::string device = part.substr(0, colon);
    const std::string backend = part.substr(colon + 1);
    if (device != "cpu" && device != "cuda") fail("device '" + device + "' is neither cpu nor cuda");
    if (backend != "gloo" && backend != "nccl") fail("'" + backend + "' is no known backend");
    if (device == "cpu" && backend == "nccl") fail("nccl serves CUDA tensors only");
    std::string& slot = device == "cpu" ? map.cpu : map.cuda;
    if (!slot.empty()) fail("device '" + device + "' is named twice");
    slot = backend;
  }
  if (map == BackendMap{}) fail("nothing is named");
  return map;
}

}  // namespace ddp
