#!/bin/sh
# safetensors 0.8.0: the same tensors with the same metadata give other bytes in each process: entries of
# __metadata__ are written in the order of a hash table with a random seed, while tensors are sorted. With one
# entry, bytes are equal. It hurts caches, build systems and model registries that go by a file's SHA-256.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 safetensors==0.8.0 numpy==2.4.6
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import subprocess
import sys

hashes = {}
for entries in (1, 8):
    code = f"""if True:
        import hashlib, torch
        from safetensors.torch import save
        metadata = {{f"key {{i}}": "value" for i in range({entries})}}
        print(hashlib.sha256(save({{"w": torch.ones(2)}}, metadata)).hexdigest()[:12])"""
    run = [subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True).stdout.strip()
           for _ in range(6)]
    hashes[entries] = run
    print(f"{entries} entries:", *run)
assert len(set(hashes[1])) == 1 and len(set(hashes[8])) > 1
END
"$python" "$work/run.py"
