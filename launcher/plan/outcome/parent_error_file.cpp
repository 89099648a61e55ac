#include "launcher/plan/outcome/parent_error_file.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "launcher/os/system/json_text.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

using nlohmann::json;

json record_of(const std::string& message) {
  return {{"message",
           {{"message", message},
            {"extraInfo", {{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr))}}}}}};
}

bool is_regular_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string write_file(const std::string& path, const std::string& text) {
  const auto problem = [&path](int error) {
    return "TORCHELASTIC_ERROR_FILE " + path + " cannot be written: " + std::strerror(error);
  };
  // Non-blocking, since the file may be a named pipe without a reader.
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  if (!file) return problem(errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return problem(errno);
    done += static_cast<std::size_t>(count);
  }
  return "";
}

}  // namespace

std::string parent_error_text(const std::string& text, const RankEnd& rank) {
  json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) root = record_of(text);
  const auto message = root.find("message");
  if (message != root.end() && message->is_object()) {
    (*message)["errorCode"] = rank.signal != 0 ? -rank.signal : rank.exit_code;
  }
  return json_text(root, /*ensure_ascii=*/true);
}

std::string pass_on_error_file(const std::string& source, const std::string& target, const RankEnd& rank) {
  if (!is_regular_file(source)) return "";
  std::ifstream file(source, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return text.empty() ? "" : write_file(target, parent_error_text(text, rank));
}

std::string parent_error_file() {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  return path == nullptr ? "" : path;
}

void record_own_error(const std::string& message) {
  const std::string target = parent_error_file();
  if (target.empty()) return;
  if (const std::string problem = write_file(target, json_text(record_of("ddprun: " + message), /*ensure_ascii=*/true));
      !problem.empty()) {
    print_line(problem);
  }
}

}  // namespace launcher
