#include "launcher/system/temporary_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>

#include "launcher/system/launch_error.h"

namespace launcher {

TemporaryFolder::TemporaryFolder() {
  constexpr std::string_view kCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kLength = 20;  // 119 random bits
  const char* parent = std::getenv("TMPDIR");
  path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/ddprun_";
  path_ = std::filesystem::absolute(path_).string();  // the ranks may be in another folder when they write
  std::random_device source;
  std::uniform_int_distribution<std::size_t> character(0, kCharacters.size() - 1);
  for (int i = 0; i < kLength; ++i) path_.push_back(kCharacters[character(source)]);
}

void TemporaryFolder::make() const {
  if (::mkdir(path_.c_str(), 0700) != 0) {
    throw LaunchError("cannot make a folder for error files as " + path_ + ": " + std::strerror(errno) +
                      " (TMPDIR names another place)");
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a worker may have put things there that cannot be removed
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace launcher
