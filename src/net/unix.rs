//! Unix sockets that listen.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listening Unix socket. Its file is removed with it.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Listens. The file of a socket that no process listens on any more is replaced.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        remove_abandoned(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // On Linux the file gets these permissions right away; elsewhere that fails, and the umask
        // decides until the file has its own below.
        let file = File::from(OwnedFd::from(socket));
        let _ = file.set_permissions(Permissions::from_mode(0o600));
        let socket = Socket::from(OwnedFd::from(file));
        socket.bind(&SockAddr::unix(path)?)?;
        let path = path.to_owned();
        let listening = (|| {
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            UnixListener::from_std(OwnedFd::from(socket).into())
        })();
        match listening {
            Ok(listener) => Ok(Self { listener, path }),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Accepts the next connection.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the file of a socket after a kill of its process. Any other file stays.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match Probe::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        },
        // Binding says what is wrong: the file is there, or the folder is not.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_belongs_to_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = UnixSocket::bind(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(UnixSocket::bind(&path, 0o660).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        // As after a kill: the file is there, and no process listens.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = UnixSocket::bind(&path, 0o600).unwrap();
        let _client = UnixStream::connect(&path).await.unwrap();
        socket.accept().await.unwrap();
        drop(socket);
        fs::write(&path, "a file of its own").unwrap();
        UnixSocket::bind(&path, 0o600).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file of its own");
    }
}
