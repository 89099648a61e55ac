#include "launcher/nodes/control/secret.h"

#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <utility>

#include "launcher/os/system/file_bytes.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"

#ifdef DDPRUN_HAS_SODIUM
#include <sodium.h>
#endif

namespace launcher::control {
std::string exposed_secret_warning(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  const unsigned int mode = status.st_mode & 07777U;
  if ((mode & (S_IRWXG | S_IRWXO)) == 0) return "";
  std::array<char, 8> octal{};
  std::snprintf(octal.data(), octal.size(), "%04o", mode);
  return "--rdzv_secret_file " + path + " has the mode " + octal.data() +
         ", so other users may be able to read the secret: chmod 600";
}

#ifdef DDPRUN_HAS_SODIUM
namespace {

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  std::string text(2 * count + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), bytes, count);
  text.pop_back();
  return text;
}

void feed(crypto_auth_hmacsha256_state& state, std::string_view text) {
  ::crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  ::crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>("\n"), 1);  // ends each part
}

}  // namespace

Secret Secret::read(const std::string& path) {
  if (::sodium_init() < 0) throw LaunchError("--rdzv_secret_file: libsodium finds no source of random numbers here");
  std::string text = file_bytes("--rdzv_secret_file", path, std::size_t{1} << 16);
  text.erase(text.find_last_not_of("\r\n") + 1);
  Secret secret(std::move(text));
  const std::size_t size = secret.bytes_.size();
  if (size < kMinSize || size > kMaxSize) {
    throw LaunchError("--rdzv_secret_file " + path + ": expected " + std::to_string(kMinSize) + " to " +
                      std::to_string(kMaxSize) + " bytes, got " + std::to_string(size));
  }
  return secret;
}

std::string Secret::proof(const Claim& claim) const {
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
  const std::string received = std::to_string(claim.received);
  for (const std::string_view part : {std::string_view("ddprun control 2"), claim.role, claim.own_challenge,
                                      claim.other_challenge, claim.session, std::string_view(received)}) {
    feed(state, part);
  }
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> result{};
  ::crypto_auth_hmacsha256_final(&state, result.data());
  return hexadecimal(result.data(), result.size());
}

bool Secret::is_valid_proof(std::string_view proof, const Claim& claim) const {
  const std::string expected = this->proof(claim);
  return proof.size() == expected.size() && ::sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

bool has_secrets() {
  return ::sodium_init() >= 0;
}

#else

Secret Secret::read(const std::string& /*path*/) {
  throw LaunchError("--rdzv_secret_file: this ddprun was built without libsodium (libsodium-dev, libsodium-static)");
}
std::string Secret::proof(const Claim& /*claim*/) const {
  return "";
}
bool Secret::is_valid_proof(std::string_view /*proof*/, const Claim& /*claim*/) const {
  return false;
}
bool has_secrets() {
  return false;
}

#endif

std::string new_challenge() {
  return random_id() + random_id();
}

}  // namespace launcher::control
