#include "launcher/os/machine/gpu_monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <sstream>
#include <utility>

#include "launcher/os/machine/nvml.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kSamplePause = 1s;
constexpr std::string_view kEndOfSample = "end";
// Much more than the lines of one sample.
constexpr std::size_t kMaxReportBytes = std::size_t{1} << 20;

// Constants of nvml.h.
constexpr unsigned kSmClock = 1;
constexpr unsigned kGpuSensor = 0;
struct Utilization {
  unsigned gpu = 0;
  unsigned memory = 0;
};
struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

// Runs in the helper and returns the driver's values; 0 for values that it does not report.
class Driver {
 public:
  std::string text() const {
    unsigned count = 0;
    std::ostringstream lines;
    if (!nvml_.is_ready() || get_count_ == nullptr || get_count_(&count) != 0) return "";
    for (unsigned index = 0; index < count; ++index) {
      void* device = nullptr;
      if (get_handle_ != nullptr && get_handle_(index, &device) == 0) lines << line_of(device) << "\n";
    }
    lines << kEndOfSample << "\n";
    return lines.str();
  }

 private:
  template <typename Value, typename... More>
  Value ask(const char* name, void* device, More... more) const {
    Value value{};
    const auto get = nvml_.find<int (*)(void*, More..., Value*)>(name);
    return get != nullptr && get(device, more..., &value) == 0 ? value : Value{};
  }
  std::string line_of(void* device) const {
    std::array<char, 128> uuid{};
    const auto get_uuid = nvml_.find<int (*)(void*, char*, unsigned)>("nvmlDeviceGetUUID");
    if (get_uuid == nullptr || get_uuid(device, uuid.data(), uuid.size() - 1) != 0) uuid[0] = '?';
    const auto memory = ask<Memory>("nvmlDeviceGetMemoryInfo", device);
    std::ostringstream line;
    line << uuid.data() << ' ' << ask<Utilization>("nvmlDeviceGetUtilizationRates", device).gpu << ' ' << memory.used
         << ' ' << memory.total << ' ' << ask<unsigned>("nvmlDeviceGetClockInfo", device, kSmClock) << ' '
         << ask<unsigned>("nvmlDeviceGetTemperature", device, kGpuSensor) << ' '
         << ask<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device);
    return line.str();
  }

  const Nvml nvml_;
  int (*const get_count_)(unsigned*) = nvml_.is_ready() ? nvml_.find<int (*)(unsigned*)>("nvmlDeviceGetCount_v2")
                                                        : nullptr;
  int (*const get_handle_)(unsigned,
                           void**) = nvml_.is_ready()
                                         ? nvml_.find<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")
                                         : nullptr;
};

void close_from(int first) {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
  constexpr int kMax = 1 << 16;
  for (int fd = first; fd < kMax; ++fd) ::close(fd);
}

// The helper closes ddprun's descriptors: otherwise a process that reads from one of ddprun's pipes would see no end as
// long as the helper runs.
[[noreturn]] void run_monitor(pid_t launcher, int fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(number, SIG_DFL);
  constexpr int kOwn = 3;
  if (::getppid() != launcher || ::dup2(fd, kOwn) < 0) ::_exit(0);
  close_from(kOwn + 1);
  const Driver driver;
  while (true) {
    const std::string text = driver.text();
    const bool is_written = ::write(kOwn, text.data(), text.size()) >= 0 || errno == EAGAIN;  // ddprun may be suspended
    if (text.empty() || !is_written) ::_exit(0);
    ::poll(nullptr, 0, static_cast<int>(std::chrono::milliseconds(kSamplePause).count()));
  }
}

}  // namespace

std::optional<GpuState> parse_gpu_state(const std::string& line) {
  GpuState gpu;
  std::istringstream words(line);
  words >> gpu.uuid >> gpu.use_percent >> gpu.memory_bytes >> gpu.memory_total >> gpu.clock_mhz >> gpu.celsius >>
      gpu.limits;
  return words ? std::optional(std::move(gpu)) : std::nullopt;
}

GpuMonitor::GpuMonitor(EventLoop& loop) : loop_(loop) {
  timer_.start_in(kSamplePause, [this] { begin(); });
}

GpuMonitor::~GpuMonitor() {
  end();
}

void GpuMonitor::begin() {
  Pipe pipe;
  try {
    pipe = make_pipe(O_NONBLOCK);
  } catch (const LaunchError&) {
    return;  // the job continues without this information
  }
  const pid_t launcher = ::getpid();
  helper_ = ::fork();
  if (helper_ == 0) run_monitor(launcher, pipe.writer.get());
  if (helper_ < 0) return;
  reader_ = std::move(pipe.reader);
  loop_.add(reader_.get(), EPOLLIN, [this](std::uint32_t) { on_text(); });
}

void GpuMonitor::on_text() {
  std::array<char, 4096> buffer{};
  const ssize_t count = ::read(reader_.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0 || text_.size() > kMaxReportBytes) return end();
  text_.append(buffer.data(), static_cast<std::size_t>(count));
  const std::string mark = std::string(kEndOfSample) + "\n";
  for (std::size_t at = text_.find(mark); at != std::string::npos; at = text_.find(mark)) {
    std::istringstream lines(text_.substr(0, at));
    text_.erase(0, at + mark.size());
    gpus_.clear();
    for (std::string line; std::getline(lines, line);) {
      if (auto gpu = parse_gpu_state(line)) gpus_.push_back(std::move(*gpu));
    }
  }
}

// Does not wait long for a helper that hangs in the driver. It ends later, and the process that inherits it reaps it.
void GpuMonitor::end() {
  gpus_.clear();
  if (reader_) loop_.remove(reader_.get());
  reader_.reset();
  if (helper_ <= 0) return;
  ::kill(helper_, SIGKILL);
  for (int tries = 0; tries < 50; ++tries) {
    const pid_t ended = ::waitpid(helper_, nullptr, WNOHANG);
    if (ended == helper_ || (ended < 0 && errno != EINTR)) break;
    ::poll(nullptr, 0, 1);
  }
  helper_ = 0;
}

std::optional<GpuState> GpuMonitor::gpu(std::string_view entry) const {
  std::size_t number = 0;
  const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error == std::errc() && stop == entry.data() + entry.size()) {
    return number < gpus_.size() ? std::optional(gpus_[number]) : std::nullopt;
  }
  for (const GpuState& each : gpus_) {
    if (!entry.empty() && each.uuid.starts_with(entry)) return each;
  }
  return std::nullopt;
}

}  // namespace launcher
