#include "launcher/plan/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/executable_file.h"

namespace launcher {
namespace {

bool runs_with_python(const Options& options) {
  if (options.no_python) return false;
  return options.module || options.run_path || options.program.front().ends_with(".py");
}

// Returns the path from here for a name that the ranks use in `folder` (empty: here).
std::string path_from_here(const std::string& file, const std::string& folder) {
  return folder.empty() || file.starts_with('/') ? file : folder + "/" + file;
}

// Returns 0, or the errno that executing `file` would give.
int executable_error(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(file.c_str(), X_OK) == 0 ? 0 : errno;
}

bool is_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::array<char, 256> start{};
  stream.read(start.data(), start.size());
  const std::string_view bytes(start.data(), static_cast<std::size_t>(stream.gcount()));
  return bytes.find('\0') == std::string_view::npos && !bytes.starts_with(
                                                           "\x7f"
                                                           "ELF");
}

[[noreturn]] void throw_not_executable(const std::string& file, int error) {
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    const bool is_package = ::access((file + "/__main__.py").c_str(), R_OK) == 0;
    throw LaunchError("cannot execute " + file + ": it is a folder" +
                          (is_package ? "; --run_path starts its __main__.py" : "; name the program in it"),
                      ExitStatus::kNotExecutable);
  }
  std::string why = why_no_program(file);
  if (why.empty()) why = error == EACCES ? why_no_permission(file) : std::strerror(error);
  throw LaunchError("cannot execute " + file + ": " + why, ExitStatus::kNotExecutable);
}

// Without PATH, execvp uses the system's default path.
std::string search_path() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/bin:/usr/bin";
}

}  // namespace

std::string python_interpreter() {
  const char* named = std::getenv("PYTHON_EXEC");
  if (named != nullptr && *named != '\0') return named;
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto python = folder / "python3";
  const bool is_environment = !error && std::filesystem::exists(folder.parent_path() / "pyvenv.cfg", error);
  return is_environment && ::access(python.c_str(), X_OK) == 0 ? python.string() : "python3";
}

namespace {

std::optional<int> field_of(const RankPlace& place, std::string_view name) {
  if (name == "rank") return place.rank;
  if (name == "local_rank") return place.local_rank;
  if (name == "world_size") return place.world_size;
  if (name == "local_world_size") return place.local_world_size;
  return std::nullopt;
}

// Replaces each ${field}; all other text remains unchanged.
std::string expand_fields(std::string_view text, const RankPlace& place) {
  std::string expanded;
  while (true) {
    const std::size_t open = text.find("${");
    const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    const std::optional<int> value = field_of(place, text.substr(open + 2, close - open - 2));
    // An unknown field may contain a known one, as in "${a${rank}".
    const std::size_t taken = value ? close + 1 : open + 2;
    expanded.append(text.substr(0, value ? open : taken));
    if (value) expanded.append(std::to_string(*value));
    text.remove_prefix(taken);
  }
  return expanded.append(text);
}

}  // namespace

std::string first_line_of_text(const std::string& file, const std::string& working_folder) {
  const std::string path = path_from_here(file, working_folder);
  std::string line;
  if (is_text(path)) {
    std::ifstream stream(path);
    std::getline(stream, line);
  }
  return line;
}

std::optional<Program> program_of_rank(const Program& program, const Options& options, const RankPlace& place) {
  if (!options.local_rank_argument && !options.expand_arguments) return std::nullopt;
  Program own = program;
  // The user's own arguments are the last ones in both lists.
  const auto count = static_cast<std::ptrdiff_t>(options.program.size()) - 1;
  for (std::vector<std::string>* arguments : {&own.arguments, &own.shell_arguments}) {
    if (arguments->empty()) continue;
    if (options.expand_arguments) {
      for (auto argument = arguments->end() - count; argument != arguments->end(); ++argument) {
        *argument = expand_fields(*argument, place);
      }
    }
    // The place in which torch.distributed.launch puts it: a program with subcommands reads it before them.
    if (options.local_rank_argument) {
      arguments->insert(arguments->end() - count,
                        "--" + *options.local_rank_argument + "=" + std::to_string(place.local_rank));
    }
  }
  return own;
}

std::vector<std::string> worker_arguments(const Options& options, const std::string& python_executable) {
  std::vector<std::string> arguments;
  if (runs_with_python(options)) {
    arguments = {python_executable, "-u"};
    if (options.module) arguments.emplace_back("-m");
  }
  arguments.insert(arguments.end(), options.program.begin(), options.program.end());
  return arguments;
}

std::string find_executable(const std::string& name, std::string_view path, const std::string& working_folder) {
  if (name.find('/') != std::string::npos) {
    const std::string shown = path_from_here(name, working_folder);
    const int error = executable_error(shown);
    if (error == 0) return name;
    if (error == ENOENT || error == ENOTDIR) throw LaunchError("program not found: " + shown, ExitStatus::kNotFound);
    throw_not_executable(shown, error);
  }
  std::string refused;
  while (true) {
    const std::size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    std::string file = folder.empty() ? "./" + name : std::string(folder) + "/" + name;
    const std::string shown = path_from_here(file, working_folder);
    const int error = executable_error(shown);
    if (error == 0) return file;
    if (error == EACCES && refused.empty()) {
      struct stat status {};
      if (::stat(shown.c_str(), &status) == 0 && S_ISREG(status.st_mode)) refused = shown;
    }
    if (colon == std::string_view::npos) break;
    path.remove_prefix(colon + 1);
  }
  if (!refused.empty()) throw_not_executable(refused, EACCES);
  struct stat status {};
  const bool here = ::stat(path_from_here(name, working_folder).c_str(), &status) == 0;
  if (here && (S_ISDIR(status.st_mode) || !why_no_program(name).empty()))
    throw_not_executable(path_from_here(name, working_folder), EACCES);
  throw LaunchError(
      "program not found in PATH: " + name +
          (here ? " (a file in " + (working_folder.empty() ? std::string("this folder") : working_folder) +
                      " is started as ./" + name + ")"
                : ""),
      ExitStatus::kNotFound);
}

std::optional<std::string> executable_in_path(const std::string& name, const std::string& working_folder) {
  try {
    return find_executable(name, search_path(), working_folder);
  } catch (const LaunchError&) {
    return std::nullopt;
  }
}

Program resolve_program(const Options& options) {
  Program program;
  program.arguments = worker_arguments(options, python_interpreter());
  try {
    program.file = find_executable(program.arguments.front(), search_path(), options.working_folder);
  } catch (const LaunchError& error) {
    if (!runs_with_python(options)) throw;
    throw LaunchError("the Python interpreter: " + std::string(error.what()) + " (PYTHON_EXEC=FILE names one)",
                      error.status());
  }
  const std::string script = path_from_here(options.program.front(), options.working_folder);
  if (runs_with_python(options) && !options.module && ::access(script.c_str(), R_OK) != 0) {
    const int error = errno;
    throw LaunchError((error == ENOENT || error == ENOTDIR ? "program not found: " : "cannot read ") + script +
                          (error == ENOENT ? "" : std::string(": ") + std::strerror(error)),
                      error == ENOENT || error == ENOTDIR ? ExitStatus::kNotFound : ExitStatus::kNotExecutable);
  }
  // env would search for an interpreter whose name ends with a carriage return, once in every rank.
  const std::string first_line = first_line_of_text(program.file, options.working_folder);
  if (first_line.starts_with("#!") && first_line.ends_with('\r')) {
    throw LaunchError("cannot execute " + program.file + ": " +
                          why_not_executed(path_from_here(program.file, options.working_folder)),
                      ExitStatus::kNotFound);
  }
  if (is_text(path_from_here(program.file, options.working_folder))) {
    program.shell_arguments = {"/bin/sh", program.file};
    program.shell_arguments.insert(program.shell_arguments.end(), program.arguments.begin() + 1,
                                   program.arguments.end());
  }
  return program;
}

}  // namespace launcher
