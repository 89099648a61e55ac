#include "launcher/os/machine/gpu_driver.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "launcher/os/machine/nvml.h"
#include "launcher/os/system/captured_output.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

using Clock = std::chrono::steady_clock;

// The few functions of nvml.h that are used; all return 0 on success.
using GetCount = int (*)(unsigned*);
using GetHandle = int (*)(unsigned, void**);
using GetUuid = int (*)(void*, char*, unsigned);
using GetVersion = int (*)(char*, unsigned);

// The last line of the helper's output. Before it are the driver's version and one line per GPU. Without a driver there
// is no output.
constexpr std::string_view kEndOfGpus = "end\n";

std::string answer_of_library() {
  const Nvml nvml;
  const auto get_count = nvml.is_ready() ? nvml.find<GetCount>("nvmlDeviceGetCount_v2") : nullptr;
  const auto get_handle = nvml.is_ready() ? nvml.find<GetHandle>("nvmlDeviceGetHandleByIndex_v2") : nullptr;
  const auto get_uuid = nvml.is_ready() ? nvml.find<GetUuid>("nvmlDeviceGetUUID") : nullptr;
  if (get_count == nullptr || get_handle == nullptr || get_uuid == nullptr) return {};
  std::array<char, 128> text{};
  const auto get_version = nvml.find<GetVersion>("nvmlSystemGetDriverVersion");
  if (get_version == nullptr || get_version(text.data(), text.size() - 1) != 0) text[0] = '\0';
  std::string answer = std::string(text.data()) + "\n";
  unsigned count = 0;
  if (get_count(&count) != 0) count = 0;
  for (unsigned index = 0; index < count; ++index) {
    void* device = nullptr;
    text = {};
    // The driver counts devices that the container may not use, but gives no handle for them.
    if (get_handle(index, &device) == 0 && get_uuid(device, text.data(), text.size() - 1) == 0)
      answer.append(text.data()).append("\n");
  }
  return answer.append(kEndOfGpus);
}

[[noreturn]] void run_helper(pid_t launcher, int fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::getppid() != launcher) ::_exit(0);
  const std::string answer = answer_of_library();
  for (std::string_view left = answer; !left.empty();) {
    const ssize_t count = ::write(fd, left.data(), left.size());
    if (count < 0 && errno != EINTR) break;
    left.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  ::_exit(0);
}

// Returns its status; nothing for a helper that even SIGKILL does not end, for example because the driver hangs in the
// kernel.
std::optional<int> reap(pid_t helper, bool was_silent) {
  int status = 0;
  if (was_silent) ::kill(helper, SIGKILL);
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  while (true) {
    const pid_t ended = ::waitpid(helper, &status, was_silent ? WNOHANG : 0);
    if (ended == helper) return status;
    if (ended < 0 && errno != EINTR) return std::nullopt;
    if (was_silent && Clock::now() > deadline) return std::nullopt;
    if (was_silent) ::poll(nullptr, 0, 1);
  }
}

GpuDriver parsed(const std::string& answer) {
  GpuDriver driver{.gpus = std::vector<std::string>()};
  std::istringstream lines(answer);
  std::getline(lines, driver.version);
  for (std::string line; std::getline(lines, line) && line + "\n" != kEndOfGpus;)
    driver.gpus->push_back(std::move(line));
  return driver;
}

}  // namespace

GpuDriver ask_gpu_driver(std::chrono::milliseconds limit) {
  Pipe pipe = make_pipe();
  const pid_t launcher = ::getpid();
  const pid_t helper = ::fork();
  if (helper < 0) throw LaunchError(std::string("cannot start a process: ") + std::strerror(errno));
  if (helper == 0) run_helper(launcher, pipe.writer.get());
  pipe.writer.reset();
  const auto answer = read_to_end(pipe.reader.get(), Clock::now() + limit);
  const auto status = reap(helper, !answer);
  if (!answer) {
    return {.problem = "the NVIDIA driver (libnvidia-ml.so.1) did not answer within " +
                       std::to_string(std::chrono::ceil<std::chrono::seconds>(limit).count()) +
                       " s; check whether nvidia-smi does"};
  }
  if (answer->ends_with(kEndOfGpus)) return parsed(*answer);
  if (status && WIFSIGNALED(*status)) {
    return {.problem = "the NVIDIA driver's library (libnvidia-ml.so.1) was ended by signal " +
                       std::to_string(WTERMSIG(*status)) + "; check whether nvidia-smi runs"};
  }
  return {.problem = "no NVIDIA driver was found (libnvidia-ml.so.1)"};
}

}  // namespace launcher
